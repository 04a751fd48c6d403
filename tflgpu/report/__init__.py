"""What became of a model: its report, advice, and what its kernels cost."""
