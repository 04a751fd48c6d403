"""Operands of kernels on tensor cores: halves as they are, floats as sums of two parts (see ``mma/operands``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tflgpu.graph.ir import Array
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.target import is_exact_in_half

OperandType = Literal["half", "float"]

PARTS: dict[OperandType, tuple[str, ...]] = {"half": ("high",), "float": ("low", "high")}

HALVES: dict[OperandType, int] = {"half": 1, "float": 2}  # that take as much memory


@dataclass(frozen=True)
class Operands:
    """The types in memory of the left side of products, the image, and of the right side, the weights."""

    image: OperandType
    weights: OperandType

    @property
    def are_halves(self) -> bool:
        """Whether products take both operands as they are."""
        return self.image == self.weights == "half"

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Which parts of the two sides are multiplied, the smallest products first; not for halves."""
        pairs = [(left, right) for left in PARTS[self.image] for right in PARTS[self.weights]]
        return [pair for pair in pairs if pair != ("low", "low")]

    @property
    def sizes(self) -> tuple[int, int]:
        """Sizes of both, in halves."""
        return HALVES[self.image], HALVES[self.weights]

    def float4s(self, vec4s: int) -> int:
        """Return the float4s of local memory for ``vec4s`` of pixels that lie there as in the image."""
        return tile_count(vec4s * HALVES[self.image], HALVES["float"])

    def registers(self, row_blocks: int, column_blocks: int) -> int:
        """Return the registers of a lane for one k-step of a warp tile."""
        image, weights = self.sizes
        return UNIT.block_registers * (image * row_blocks + weights * column_blocks)


def operands_of_image(src: Storage, weights: OperandType) -> Operands:
    """Return the operands of products of an image as it is stored."""
    return Operands("half" if src.type == "half" else "float", weights)


def type_of_constant(request: Request, data: Array) -> OperandType:
    """Half if it holds each of the numbers, or if the model is in half."""
    return "half" if request.target.storage == "half" or is_exact_in_half(data) else "float"
