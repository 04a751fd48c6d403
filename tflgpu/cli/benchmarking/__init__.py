"""Measurements of ``tflgpu benchmark`` beside time: memory, and kernels by type."""
