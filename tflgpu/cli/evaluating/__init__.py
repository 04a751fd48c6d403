"""Parts that the verbs of ``tflgpu evaluate`` share."""
