"""Kernels for NVIDIA's GPUs, most of them on matrix units in half precision."""

from __future__ import annotations

from tflgpu.kernels.architecture import Architecture
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.nvidia.m16n8k16 import M16N8K16

# Whose compiler takes PTX: half storage is read by instructions of its own.
NVIDIA = Architecture("nvidia", lambda target: target.ptx, refines=GPU, prelude=("nvidia/storage_ptx",)).register()

# Those with matrix units (compute capability 8.0 and newer).
AMPERE = Architecture(
    "nvidia with matrix units",
    lambda target: target.matrix_unit == M16N8K16.name,
    refines=GPU,
    prelude=("nvidia/matrix_units_ptx",),
).register()
