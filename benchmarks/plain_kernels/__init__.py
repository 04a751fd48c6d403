"""The costs of a GPU's kernels without PTX and matrix units, and products beside the convolutions that they are."""
