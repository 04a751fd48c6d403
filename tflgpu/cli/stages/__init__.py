"""What each stage of the compiler gives, as text and as plain data for JSON: for ``tflgpu show``."""
