"""What a pointwise convolution knows of the gates that it computes ahead of its products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tflgpu.kernels.kernel import Storage


@dataclass(frozen=True)
class Excitation:
    """Gates of a squeeze-and-excitation, as ``templates/mma/excitation.cl.j2`` computes them.

    hidden_epilogue, gate_epilogue: ops after the two layers. sums: shares of the hidden layer. sharers: work-items
    that share a hidden channel. hidden_blocks: of 16 hidden channels. gates_at: place of the gates in the workspace,
    in vec4s. early: whether the gates' weights are loaded before the shares have been added up.
    """

    hidden_epilogue: Sequence[Mapping[str, object]]
    gate_epilogue: Sequence[Mapping[str, object]]
    sums: Storage
    sharers: int
    hidden_blocks: int
    gates_at: int
    early: bool
