"""Plots and their scales: the arena over time, and what kernels reach beside what a device allows.

The roofline is that of Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for
Multicore Architectures" (2009).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import atan2, ceil, degrees, floor, log10, sqrt

from tflgpu.page.contents import ArenaTensor, Contents, KernelFacts, Piece

UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))

FEW_POWERS = 2.5  # of ten on a logarithmic axis


@dataclass(frozen=True)
class Tick:
    """place: in pixels. label: ``""`` for a line without one."""

    place: float
    label: str


@dataclass(frozen=True)
class Canvas:
    """A plot in pixels, with room for labels around it."""

    width: int
    height: int
    left: int
    top: int = 14
    right: int = 14
    bottom: int = 44

    @property
    def inner_width(self) -> int:
        """Width between the margins, in pixels."""
        return self.width - self.left - self.right

    @property
    def inner_height(self) -> int:
        """Height between the margins, in pixels."""
        return self.height - self.top - self.bottom


@dataclass(frozen=True)
class LogScale:
    """Powers of ten at equal distances: from ``low`` at ``begin`` to ``high`` at ``end``, in pixels."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, number: float) -> float:
        """Return the place of a number on the axis, in pixels."""
        part = (log10(number) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return self.begin + (self.end - self.begin) * part

    def ticks(self) -> tuple[Tick, ...]:
        """Powers of ten; where there are few of them, twice and five times these too."""
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        factors = (1, 2, 5) if log10(self.high / self.low) < FEW_POWERS else (1,)
        numbers = [factor * 10.0**power for power in powers for factor in factors]
        return tuple(Tick(self(n), f"{n:g}") for n in numbers if self.low <= n <= self.high)


def linear_ticks(most: float, place: Callable[[float], float], label: Callable[[float], str], count: int) -> list[Tick]:
    """Return ticks at round numbers from 0 on.

    Args:
        most: The greatest number of the axis.
        place: Gives the coordinate of a number.
        label: Gives the text of a number.
        count: About how many ticks there are.
    """
    rough = 0.75 * max(most, 1e-12) / count
    power = 10 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [Tick(place(step * i), label(step * i)) for i in range(floor(most / step * (1 + 1e-9)) + 1)]


def duration(seconds: float) -> str:
    """Return a time with three digits, in nanoseconds, microseconds, milliseconds or seconds.

    Args:
        seconds: The time.
    """
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 0.9995:
            return f"{digits(seconds * factor)} {unit}"
    return f"{digits(seconds * 1e9)} ns"


def size(count: float) -> str:
    """Return a number of bytes with three digits, in decimal units.

    Args:
        count: Bytes.
    """
    factor, unit = size_unit(count)
    return f"{digits(count / factor) if factor > 1 else round(count)} {unit}"


def size_unit(count: float) -> tuple[float, str]:
    """Return the decimal unit for a number of bytes, after its size in bytes.

    Args:
        count: Bytes.
    """
    return next((pair for pair in UNITS if count >= 0.9995 * pair[0]), UNITS[-1])


def digits(number: float) -> str:
    """Return three digits of a number, but no more than three after the point.

    Args:
        number: Any finite number.
    """
    rounded = float(f"{number:.3g}")
    places = 2 - floor(log10(abs(rounded))) if rounded else 0
    return f"{rounded:,.{max(0, min(places, 3))}f}"


def rate(giga: float, unit: str) -> str:
    """Return three digits of a rate, in billions a second or in trillions.

    Args:
        giga: Billions a second.
        unit: Is written after the prefix.
    """
    return f"{digits(giga / 1e3)} T{unit}/s" if giga >= 999.5 else f"{digits(giga)} G{unit}/s"


def share(part: float, whole: float) -> str:
    """Return a part in percent, with a digit after the point where it is small.

    Args:
        part: In the same unit as the whole.
        whole: If it is 0, so is the share.
    """
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.05:
        return "<0.1%"
    return f"{percent:.0f}%" if percent >= 9.95 or percent == 0 else f"{percent:.1f}%"


def dimensions(shape: tuple[int, ...]) -> str:
    """Return sizes with the sign of multiplication between them.

    Args:
        shape: No sizes are a scalar.
    """
    return "\u00d7".join(map(str, shape)) or "scalar"


ARENA_CANVASES = {
    "wide": Canvas(width=880, height=380, left=76),
    "narrow": Canvas(width=350, height=320, left=66, right=8),
}


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


ROOFLINE_CANVASES = {
    "wide": Canvas(width=880, height=470, left=64),
    "narrow": Canvas(width=350, height=360, left=54, right=8),
}

LARGEST = 13.0  # radius of the slowest kernel's mark
SMALLEST = 3.5

FEW_TERA = 5000.0  # GFLOP/s from which on the axis is in TFLOP/s


@dataclass(frozen=True)
class PointMark:
    """group: place of the kernel's operator type among those that have a colour."""

    kernel: KernelFacts
    x: float
    y: float
    radius: float
    group: int


@dataclass(frozen=True)
class Roof:
    """The ceilings as a path, and their labels with the places of these. slope: of the first, in degrees."""

    d: str
    bandwidth: str
    arithmetic: str
    bandwidth_place: tuple[float, float]
    arithmetic_place: tuple[float, float]
    slope: float


@dataclass(frozen=True)
class RooflineDrawing:
    """unit: of the rates."""

    canvas: Canvas
    points: tuple[PointMark, ...]
    roof: Roof
    unit: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def draw_roofline(contents: Contents, groups: Mapping[str, int], canvas: Canvas) -> RooflineDrawing | None:
    """Draw the rates of kernels below the device's limits; None if no kernel multiplies.

    Args:
        contents: The kernels and the limits.
        groups: Operator types that have a colour, and its number.
        canvas: The size of the drawing.
    """
    kernels = [k for k in contents.kernels if k.gflops]
    if not kernels:
        return None
    bandwidth, peak = contents.bandwidth.rate, contents.arithmetic.rate
    ridge = peak / bandwidth
    intensities, rates = [k.intensity or 0.0 for k in kernels], [k.gflops or 0.0 for k in kernels]
    right, bottom = canvas.left + canvas.inner_width, canvas.top + canvas.inner_height
    x = LogScale(min(*intensities, ridge) / 2, max(*intensities, ridge) * 2.5, canvas.left, right)
    y = LogScale(min(*rates, peak) / 2, peak * 1.7, bottom, canvas.top)
    slowest = max(k.seconds or 0.0 for k in kernels)
    points = [
        PointMark(
            k,
            x(k.intensity or 1.0),
            y(k.gflops or 1.0),
            max(SMALLEST, LARGEST * sqrt((k.seconds or 0.0) / slowest)),
            groups.get(k.group, len(groups)),
        )
        for k in sorted(kernels, key=lambda k: -(k.seconds or 0.0))
    ]
    begin = max(x.low, y.low / bandwidth)
    start, corner = (x(begin), y(begin * bandwidth)), (x(ridge), y(peak))
    d = f"M{start[0]:.1f} {start[1]:.1f}L{corner[0]:.1f} {corner[1]:.1f}H{right}"
    across, up = corner[0] - start[0], start[1] - corner[1]
    length = max(1.0, sqrt(across**2 + up**2))
    shift = 8 / length  # the label stands above the line
    place = start[0] + 0.12 * across - up * shift, start[1] - 0.12 * up - across * shift
    roof = Roof(
        d,
        f"{contents.bandwidth.name} {rate(bandwidth, 'B')}",
        f"{contents.arithmetic.name} {rate(peak, 'FLOP')}",
        place,
        (right - 4, corner[1] - 7),
        -degrees(atan2(up, across)),
    )
    unit, factor = ("TFLOP/s", 1e3) if peak >= FEW_TERA else ("GFLOP/s", 1.0)
    y_ticks = LogScale(y.low / factor, y.high / factor, y.begin, y.end).ticks()
    return RooflineDrawing(canvas, tuple(points), roof, unit, x.ticks(), y_ticks)
