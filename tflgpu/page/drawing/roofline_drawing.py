"""The roofline: what kernels reach, beside what their bytes and multiplications allow, both axes logarithmic.

The model is that of Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for Multicore
Architectures" (2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import atan2, degrees, sqrt

from tflgpu.page.contents import Contents, KernelFacts
from tflgpu.page.drawing.axes import Canvas, LogScale, Tick, rate

CANVASES = {"wide": Canvas(width=880, height=470, left=64), "narrow": Canvas(width=350, height=360, left=54, right=8)}

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
