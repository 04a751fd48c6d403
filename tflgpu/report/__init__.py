"""The report of a model, advice to its author, and profiles of its kernels."""
