"""tflgpu beside its peers: processes that take turns by the same clocks, and rows of what they took."""
