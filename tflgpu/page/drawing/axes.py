"""Scales of plots, and numbers as people read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor, log10

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
