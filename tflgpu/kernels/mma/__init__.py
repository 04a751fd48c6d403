"""Kernels for GPUs with tensor cores, which multiply and add (MMA) blocks of halves, or of parts of floats."""

from __future__ import annotations

from tflgpu.kernels.architecture import Architecture
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.mma.m16n8k16 import M16N8K16

LEAST_GROUP = 4 * M16N8K16.lanes  # work-items, which the tiles of these kernels are made for

MMA = Architecture(
    "mma",
    lambda target: target.matrix_unit == M16N8K16.name and target.local_size >= LEAST_GROUP,
    refines=GPU,
    prelude=("ptx/matrix_units_ptx", "ptx/float_products"),
).register()

KERNELS: tuple[str, ...] = (
    "attention_kernel",
    "convolution_kernels",
    "depthwise_pointwise",
    "diagonal_depthwise",
    "excited_pointwise",
    "gemm.activations",
    "pointwise_depthwise",
    "rewrites",
)
