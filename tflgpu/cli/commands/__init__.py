"""One module a command of ``tflgpu``."""
