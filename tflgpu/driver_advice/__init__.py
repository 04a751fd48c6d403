"""Advice to users about OpenCL drivers: the GPUs of a machine that have none, and what to install for them or the CPU.

The runtime knows facts only: which devices it has found, and what is wrong with a driver's library. Advice about a
driver with a known fault is a field of its record in ``tflgpu/runtime/opencl/quirks.py``.
"""
