"""Measurements of tflgpu against its peers; nothing here is installed with the package."""
