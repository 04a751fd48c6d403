"""The graph of a piece as a list: a line for each kernel in its order, and beside it the lanes of values that wait.

A value has a lane from the kernel that computes it to the last one that reads it, as branches have in histories of
version control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LINE = 26  # pixels of a kernel's line; templates/page.css has the same number
LANE = 12  # between two lanes
WIDEST = 66  # between the first and the last lane: many lanes are closer together
MARGIN = 9  # from the edge to the first lane


@dataclass(frozen=True)
class Dot:
    """A kernel, or what comes from outside or leaves. place: in the piece, from 1 on."""

    place: int
    x: float
    y: float


@dataclass(frozen=True)
class Lane:
    """A connection. d: the path, as SVG has it. source, target: places in the piece."""

    d: str
    source: int
    target: int


@dataclass(frozen=True)
class LanesDrawing:
    """Dots and lanes, with the size of the whole in pixels."""

    width: float
    height: float
    dots: tuple[Dot, ...]
    lanes: tuple[Lane, ...]


def draw_lanes(sources: Mapping[int, Sequence[int]]) -> LanesDrawing:
    """Draw a lane for each line of a list, beside the list.

    Args:
        sources: Where the data of each line come from, as :func:`sources_of` gives them.
    """
    lane = _lane_of(sources)
    most = max(lane.values(), default=0)
    pitch = min(LANE, WIDEST / max(1, most))
    dots = {place: Dot(place, MARGIN + pitch * lane[place], LINE * (place + 0.5)) for place in sources}
    lanes = [
        Lane(_path(dots[source], dots[place]), source, place) for place, before in sources.items() for source in before
    ]
    return LanesDrawing(2 * MARGIN + pitch * most, LINE * len(sources), tuple(dots.values()), tuple(lanes))


def _lane_of(sources: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return the first free lane for each, where a value that ends at a line frees its lane for the result."""
    last = {source: place for place, before in sources.items() for source in before}
    lane: dict[int, int] = {}
    taken: dict[int, int] = {}  # lane -> the last line that reads its value
    for place, before in sources.items():
        free = [number for number, end in taken.items() if end <= place]
        for number in free:
            del taken[number]
        continued = [lane[source] for source in before if last[source] == place]
        lane[place] = min(continued) if continued else next(n for n in range(len(sources)) if n not in taken)
        if place in last:
            taken[lane[place]] = last[place]
    return lane


def _path(source: Dot, target: Dot) -> str:
    """Down the source's lane to the line before the target, and then over to it."""
    if source.x == target.x:
        return f"M{source.x:g} {source.y:g}V{target.y:g}"
    above = target.y - LINE
    middle = target.y - LINE / 2
    bend = f"C{source.x:g} {middle:g} {target.x:g} {middle:g} {target.x:g} {target.y:g}"
    return f"M{source.x:g} {source.y:g}V{above:g}{bend}"
