"""The drawing of docs/internals/design.md: ``python -m scripts.pages.draw_road`` writes docs/pictures/road.svg.

It is made from the code. Above: the calls of ``tflgpu.compile`` in order, each in the column of its package.
Below: which package imports which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from scripts.pages.road import Call, calls, imports

PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "road.svg"

# Pixels.
LEFT, COLUMN, ROW, HEADER, GAP, MARGIN = 330, 62, 21, 40, 78, 14

BLUE, GREY, RED, BAND = "#1b6ca8", "#6b7785", "#c0392b", "#eef3f8"


def import_order(imported: Mapping[str, frozenset[str]], road: Sequence[str]) -> list[str]:
    """The packages, each behind those that it imports. Where several can come next, the road's first one does.

    Rooms that import each other in a circle come one behind the other.
    """
    rank = {package: place for place, package in reversed(list(enumerate(road)))}
    needed = {package: _reached(imported, package) for package in imported}
    order: list[str] = []
    while len(order) < len(imported):
        left = set(imported) - set(order)
        ready = [package for package in left if all(package in needed[other] for other in needed[package] & left)]
        order.append(min(ready, key=lambda package: (rank.get(package, -1), package)))
    return order


def _reached(imported: Mapping[str, frozenset[str]], package: str) -> set[str]:
    """The packages that ``package`` needs, also by way of others."""
    found: set[str] = set()
    new = {package}
    while new:
        new = {other for each in new for other in imported[each]} - found
        found |= new
    return found


def draw() -> str:
    """The drawing as SVG."""
    road, imported = calls(), imports()
    order = import_order(imported, [call.symbol.part for call in road])
    columns = {package: LEFT + (place + 0.5) * COLUMN for place, package in enumerate(order)}
    below = HEADER + len(road) * ROW + GAP
    width, height = LEFT + len(order) * COLUMN + MARGIN, below + len(order) * ROW + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
        '  font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_columns(columns, height),
        *_road(road, columns),
        _text(MARGIN, below - 38, "Shaded: compiler.py. Only a cold start goes here, and it needs no device.", GREY),
        _text(MARGIN, below - 14, "Imports: the package of a row imports those of its dots.", GREY),
        *_imports(order, imported, columns, below),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _columns(columns: Mapping[str, float], height: int) -> Iterator[str]:
    yield _text(MARGIN, 22, "The calls of tflgpu.compile, and their packages", GREY)
    for package, x in columns.items():
        yield _line([(x, HEADER - 6), (x, height - MARGIN)], "#dde3ea", 1)
        yield _text(x, 22, package, "black", anchor="middle", bold=True)


def _road(road: Sequence[Call], columns: Mapping[str, float]) -> Iterator[str]:
    stops = [(columns[call.symbol.part], HEADER + (place + 0.5) * ROW) for place, call in enumerate(road)]
    cold = [y for (_, y), call in zip(stops, road, strict=True) if call.caller == "compiler"]
    top, wide = min(cold) - ROW / 2, max(columns.values()) + COLUMN / 2
    yield f'<rect x="0" y="{top}" width="{wide}" height="{len(cold) * ROW}" fill="{BAND}"/>'
    for (x, y), call in zip(stops, road, strict=True):
        yield _line([(LEFT, y), (x, y)], "#cfd8e3", 1)
        result = call.symbol.result_name
        gives = f" → {result}" if result and result != call.symbol.name else ""
        yield f'<circle cx="{x}" cy="{y}" r="5" fill="{BLUE}"/>'
        yield _text(MARGIN, y + 4, f"{call.symbol.name}{gives}", "black")
    yield _line(stops, BLUE, 2)


def _imports(
    order: Sequence[str], imported: Mapping[str, frozenset[str]], columns: Mapping[str, float], top: int
) -> Iterator[str]:
    for place, package in enumerate(order):
        y = top + (place + 0.5) * ROW
        yield _text(LEFT - MARGIN, y + 4, package, "black", anchor="end", bold=True)
        yield _line([(LEFT, y), (max(columns.values()), y)], "#dde3ea", 1)
        yield f'<rect x="{columns[package] - 5}" y="{y - 5}" width="10" height="10" fill="{GREY}"/>'
        for other in order:
            if other in imported[package]:
                colour = BLUE if order.index(other) < place else RED
                yield f'<circle cx="{columns[other]}" cy="{y}" r="4" fill="{colour}"/>'


def _text(x: float, y: float, text: str, colour: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _line(points: Sequence[tuple[float, float]], colour: str, width: int) -> str:
    path = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
