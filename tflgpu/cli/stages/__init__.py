"""Views of each stage of the compiler, as text and as plain data for JSON: for ``tflgpu show``."""
