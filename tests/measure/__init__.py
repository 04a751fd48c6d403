"""Tests of :mod:`tflgpu.measure`."""
