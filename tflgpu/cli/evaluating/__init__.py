"""What the verbs of ``tflgpu evaluate`` share."""
