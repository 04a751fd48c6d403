"""Kernels of what is normalized along the last axis: softmax and layer normalization."""
