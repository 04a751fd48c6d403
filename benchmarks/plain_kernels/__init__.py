"""What a GPU's kernels cost without PTX and matrix units, and products beside the convolutions that they are."""
