"""Parameters of the two skeletons of matrix products on tensor cores, and of gates computed ahead of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tflgpu.graph.layout import Size
from tflgpu.kernels.kernel import Parameters, Storage
from tflgpu.kernels.mma.m16n8k16 import Operands


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


@dataclass(frozen=True)
class SqueezedMean:
    """A mean that the convolution computes from sums of the image's channels, and then the hidden layer from it.

    epilogue: ops on the mean. factor: what sums are multiplied by. part_sharers: work-items that share the parts of a
    vec4. channel_sharers: those that share the channels of a hidden channel. at: place of the means in the workspace,
    in vec4s. early: pairs of slices of which the layer's weights are loaded ahead of the sums.
    """

    epilogue: Sequence[Mapping[str, object]]
    factor: float
    part_sharers: int
    channel_sharers: int
    at: int
    early: int


@dataclass(frozen=True)
class Excitation:
    """Gates of a squeeze-and-excitation, as ``templates/mma/excitation.cl.j2`` computes them.

    hidden_epilogue, gate_epilogue: ops after the two layers. sums: shares of the hidden layer. sharers: work-items
    that share a hidden channel. hidden_blocks: of 16 hidden channels. gates_at: place of the gates in the workspace,
    in vec4s. early: whether the gates' weights are loaded before the shares have been added up. mean: what the kernel
    knows of the mean where it computes that; then the sums are those of the image's channels. scaled: whether products
    of gates are multiplied by scales. product_epilogue: ops on the image times its gates. product_limits: between which
    whole numbers that is rounded in half precision, if it is.
    """

    hidden_epilogue: Sequence[Mapping[str, object]]
    gate_epilogue: Sequence[Mapping[str, object]]
    sums: Storage
    sharers: int
    hidden_blocks: int
    gates_at: int
    early: bool
    mean: SqueezedMean | None = None
    scaled: bool = False
    product_epilogue: Sequence[Mapping[str, object]] = ()
    product_limits: tuple[int, int] | None = None
