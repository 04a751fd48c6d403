"""The tests of tflgpu."""
