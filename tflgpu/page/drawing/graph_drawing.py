"""The graph of a piece as an overview: a block for each chain of kernels, branches side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from tflgpu.page.contents import KernelFacts, Piece
from tflgpu.page.drawing.chains import chains_of, transitive_reduction
from tflgpu.page.drawing.layered import BELOW, Box, Point, arrange, layers_of
from tflgpu.report.report import counted

# Pixels. Kernels of chains are squares, those of short ones lines of text.
WIDTH = 164
LINE = 26
SQUARE, PITCH, PADDING, TITLE = 20, 24, 12, 26
COLUMNS = (6, 16)  # of squares, of the shortest and the longest chains
PILL = 26
FOLD = 3  # kernels from which on a chain has squares
CHARACTERS = 13  # of a line of text


@dataclass(frozen=True)
class Mark:
    """A kernel: a line of text, or a square, which has no label."""

    kernel: KernelFacts
    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True)
class Block:
    """A chain. title: of squares, else ``""``."""

    x: float
    y: float
    width: float
    height: float
    title: str
    seconds: float
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Pill:
    """Where data enter or leave."""

    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True)
class Line:
    """A connection between two kernels. d: the path, as SVG has it. is_skip: beside a longer path.

    source, target: numbers of kernels; -1 for what comes from outside of the piece, or leaves it.
    """

    d: str
    source: int
    target: int
    is_skip: bool


@dataclass(frozen=True)
class GraphDrawing:
    """stubs: the tops of blocks far below the inputs that read one."""

    width: float
    height: float
    blocks: tuple[Block, ...]
    pills: tuple[Pill, ...]
    lines: tuple[Line, ...]
    stubs: tuple[Point, ...]


def sources_of(piece: Piece) -> dict[int, list[int]]:
    """Where the data of each kernel come from, by place in the piece, from 1 on.

    0 stands for what comes from outside of it, the number after the last one for what leaves it.
    """
    place = {k.number: i for i, k in enumerate(piece.kernels, 1)}
    sources: dict[int, list[int]] = {0: []}
    for k in piece.kernels:
        sources[place[k.number]] = [*([0] if k.from_outside else []), *(place[s] for s in k.sources)]
    sources[len(place) + 1] = [place[k.number] for k in piece.kernels if k.is_output]
    return sources


def draw_graph(piece: Piece, inputs: str, outputs: str) -> GraphDrawing:
    """Draw the kernels of a piece, and what goes from one to the other.

    Args:
        piece: The kernels.
        inputs: The name of what comes from outside of the piece.
        outputs: The name of what leaves it.
    """
    sources = sources_of(piece)
    end = len(piece.kernels) + 1
    reduced = transitive_reduction(sources)
    chains = [[0], *chains_of(range(1, end), {(a, b) for a, b in reduced if a and b < end}), [end]]
    home = {node: number for number, chain in enumerate(chains) for node in chain}
    edges = sorted((a, b) for b, before in sources.items() for a in before if home[a] != home[b])
    layer = layers_of(len(chains), {(home[a], home[b]) for a, b in edges if a})
    stubs = {home[b] for a, b in edges if a == 0 and layer[home[b]]}
    edges = [(a, b) for a, b in edges if a or home[b] not in stubs]
    boxes = [_text_box(inputs), *map(_box, chains[1:-1]), _text_box(outputs)]
    arranged = arrange(boxes, {(home[a], home[b]) for a, b in edges})
    blocks = [_block(piece, chains[n], boxes[n], arranged.corners[n]) for n in range(1, len(chains) - 1)]
    pills = [
        Pill(*arranged.corners[n], boxes[n].width, boxes[n].height, name)
        for n, name in ((0, inputs), (len(chains) - 1, outputs))
        if any(n in edge for edge in arranged.routes)
    ]
    number = [-1, *(k.number for k in piece.kernels), -1]
    lines = []
    for a, b in edges:
        source, target = home[a], home[b]
        below = boxes[source].height
        points = [
            _center(arranged.corners[source], boxes[source], below),
            *arranged.routes[source, target],
            _center(arranged.corners[target], boxes[target], 0.0),
        ]
        lines.append(Line(_path(points), number[a], number[b], (a, b) not in reduced))
    tops = tuple(_center(arranged.corners[n], boxes[n], 0.0) for n in sorted(stubs))
    return GraphDrawing(arranged.width, arranged.height, tuple(blocks), tuple(pills), tuple(lines), tops)


def _text_box(text: str) -> Box:
    return Box(min(WIDTH, 36 + 7.0 * len(text)), PILL)


def _box(chain: Sequence[int]) -> Box:
    if len(chain) < FOLD:
        return Box(WIDTH, LINE * len(chain))
    columns = _columns(len(chain))
    return Box(PITCH * columns + 2 * PADDING - 4, TITLE + PITCH * -(-len(chain) // columns) + PADDING / 2)


def _columns(squares: int) -> int:
    return max(COLUMNS[0], min(COLUMNS[1], ceil(sqrt(2 * squares))))


def _block(piece: Piece, chain: Sequence[int], box: Box, corner: Point) -> Block:
    x, y = corner
    kernels = [piece.kernels[node - 1] for node in chain]
    if len(chain) < FOLD:
        marks = [Mark(k, x, y + LINE * i, WIDTH, LINE, _label(k, CHARACTERS)) for i, k in enumerate(kernels)]
    else:
        cells = (divmod(i, _columns(len(chain))) for i in range(len(chain)))
        places = [(x + PADDING + PITCH * column, y + TITLE + PITCH * row) for row, column in cells]
        marks = [Mark(k, *place, SQUARE, SQUARE, "") for k, place in zip(kernels, places, strict=True)]
    title = counted(len(chain), "kernel") if len(chain) >= FOLD else ""
    return Block(x, y, box.width, box.height, title, sum(k.seconds or 0.0 for k in kernels), tuple(marks))


def _center(corner: Point, box: Box, down: float) -> Point:
    return corner[0] + box.width / 2, corner[1] + down


def _path(points: Sequence[Point]) -> str:
    """Return a line that is vertical, but for bends above the layers that it comes to: there are no boxes."""
    x, y = points[0]
    path = [f"M{x:.1f} {y:.1f}"]
    for next_x, next_y in points[1:]:
        if abs(next_x - x) >= 0.5:
            begin, middle = next_y - BELOW, next_y - BELOW / 2
            path.append(f"V{begin:.1f}C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}")
            x = next_x
        else:
            path.append(f"V{next_y:.1f}")
    return "".join(path)


def _label(kernel: KernelFacts, characters: int) -> str:
    """Return the operator type that its time counts for, and how many other operators were fused with it."""
    more = f" +{len(kernel.operators) - 1}" if len(kernel.operators) > 1 else ""
    room = characters - len(more)
    return (kernel.group if len(kernel.group) <= room else kernel.group[: room - 1] + "…") + more
