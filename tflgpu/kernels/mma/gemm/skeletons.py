"""Parameters of the two skeletons of matrix products on tensor cores, which those of their loaders extend."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import Size
from tflgpu.kernels.kernel import Parameters, Storage
from tflgpu.kernels.mma.operands import Operands


@dataclass(frozen=True, kw_only=True)
class RegistersParameters(Parameters):
    """Parameters of ``templates/mma/gemm/registers.cl.j2``."""

    operands: Operands
    row_blocks: int
    column_blocks: int
    split_k: int
    k_steps_per_split: Size
    prefetch_depth: int
    double_buffered: bool
    column_tiles: Size


@dataclass(frozen=True, kw_only=True)
class LocalMemoryParameters(Parameters):
    """Parameters of ``templates/mma/gemm/local_memory.cl.j2``."""

    column_blocks: int
    column_tiles: Size
    src: Storage
