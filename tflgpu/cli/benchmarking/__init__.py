"""What ``tflgpu benchmark`` measures, beside time: memory, and kernels by type."""
