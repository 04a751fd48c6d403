"""Kernels of what is normalized along the last axis: softmax, layer normalization and attention."""
