"""The arena over time: a rectangle for each tensor, steps across and addresses up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tflgpu.page.contents import ArenaTensor, Piece
from tflgpu.page.drawing.axes import Canvas, Tick, linear_ticks, size_unit

CANVASES = {"wide": Canvas(width=880, height=380, left=76), "narrow": Canvas(width=350, height=320, left=66, right=8)}


@dataclass(frozen=True)
class TensorBox:
    """first, last: numbers of kernels, between which the tensor is there."""

    tensor: ArenaTensor
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class ArenaDrawing:
    """alive: the path of the bytes that are in use at each step. step: pixels of a kernel. begin: number of the first.

    bases: where the arenas of several pieces meet.
    """

    canvas: Canvas
    boxes: tuple[TensorBox, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    alive: str
    bases: tuple[float, ...]
    step: float


def draw_arena(pieces: Sequence[Piece], canvas: Canvas) -> ArenaDrawing:
    """Draw the arenas of all pieces, one above the other.

    Args:
        pieces: Each has an arena of its own.
        canvas: The size of the drawing.
    """
    kernels = sum(len(p.kernels) for p in pieces)
    total = sum(p.arena_bytes for p in pieces)
    step = canvas.inner_width / max(1, kernels)
    bottom = canvas.top + canvas.inner_height

    def x(number: float) -> float:
        return canvas.left + step * number

    def y(address: float) -> float:
        return bottom - canvas.inner_height * address / max(1, total)

    boxes: list[TensorBox] = []
    bases: list[float] = []
    alive: list[int] = []
    base = 0
    for piece in pieces:
        alive += [base] * len(piece.kernels)
        for tensor in piece.tensors:
            low, high = y(base + tensor.offset), y(base + tensor.offset + tensor.bytes)
            boxes.append(
                TensorBox(tensor, x(tensor.first), high, step * (tensor.last - tensor.first + 1), max(low - high, 0.5))
            )
            for number in range(tensor.first, tensor.last + 1):
                alive[number] += tensor.bytes
        base += piece.arena_bytes
        bases.append(y(base))
    count = 6 if canvas.width > 600 else 4
    factor, unit = size_unit(total)
    y_ticks = linear_ticks(total, y, lambda b: f"{b / factor:g} {unit}", count)
    x_ticks = linear_ticks(max(1, kernels), x, lambda n: f"{n:g}", 12 if canvas.width > 600 else 5)
    path = "".join(f"V{y(b):.1f}H{x(number + 1):.1f}" for number, b in enumerate(alive))
    line = f"M{x(0):.1f} {bottom}{path}V{bottom}"
    return ArenaDrawing(canvas, tuple(boxes), tuple(x_ticks), tuple(y_ticks), line, tuple(bases[:-1]), step)
