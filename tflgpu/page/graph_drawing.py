"""The graph of a piece in pictures: an overview of chains of kernels, and a list of kernels beside lanes of values.

An edge beside a longer path, such as a residual connection, does not end a chain.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures"
(1981): layers by the longest path, points on which long edges pass a layer, orders and places by the means of
neighbours.

A value has a lane from the kernel that computes it to the last one that reads it, as branches have in histories of
version control.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt

from tflgpu.page.contents import KernelFacts, Piece
from tflgpu.report.report import counted

Edge = tuple[int, int]


def transitive_reduction(sources: Mapping[int, Sequence[int]]) -> set[Edge]:
    """Return the edges beside which there is no longer path.

    Args:
        sources: Where the edges to each node come from; the nodes in an order in which these come first.
    """
    ancestors: dict[int, int] = {}  # as the bits of a number
    kept: set[Edge] = set()
    for node, before in sources.items():
        through = 0
        for source in before:
            through |= ancestors[source]
        kept.update((source, node) for source in before if not through >> source & 1)
        for source in before:
            through |= 1 << source
        ancestors[node] = through
    return kept


def chains_of(nodes: Sequence[int], edges: set[Edge]) -> list[list[int]]:
    """Return the nodes in chains: each reads the one before it alone, which nothing else reads.

    Args:
        nodes: In an order in which every edge leads to a later one.
        edges: Pairs of nodes.
    """
    leaving, entering = (Counter(edge[end] for edge in edges) for end in (0, 1))
    after = {a: b for a, b in edges if leaving[a] == 1 and entering[b] == 1}
    inner = set(after.values())
    chains = []
    for node in nodes:
        if node not in inner:
            chain = [node]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            chains.append(chain)
    return chains


SWEEPS = 16  # over all layers, to order the boxes and again to place them
BETWEEN = 20  # pixels between two boxes
BELOW = 30  # pixels between two layers
PASSAGE = 2  # pixels of width for an edge that passes a layer

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """The size of a node in pixels."""

    width: float
    height: float


@dataclass(frozen=True)
class Arrangement:
    """corners: left and top of each box. routes: the points of each edge between its two boxes."""

    corners: tuple[Point, ...]
    routes: Mapping[Edge, tuple[Point, ...]]
    width: float
    height: float


def arrange(boxes: Sequence[Box], edges: Collection[Edge]) -> Arrangement:
    """Place boxes in layers, so that edges lead downwards and cross seldom.

    Args:
        boxes: Numbered in an order in which every edge leads to a higher number.
        edges: Pairs of numbers of boxes.
    """
    boxes = list(boxes)
    count = len(boxes)
    layer = layers_of(count, edges)
    paths: dict[Edge, list[int]] = {}
    for a, b in sorted(edges):
        passages = range(len(boxes), len(boxes) + layer[b] - layer[a] - 1)
        boxes += [Box(PASSAGE, 0.0)] * len(passages)
        layer += range(layer[a] + 1, layer[b])
        paths[a, b] = [a, *passages, b]
    above: defaultdict[int, list[int]] = defaultdict(list)
    below: defaultdict[int, list[int]] = defaultdict(list)
    for path in paths.values():
        for upper, lower in pairwise(path):
            above[lower].append(upper)
            below[upper].append(lower)
    layers: list[list[int]] = [[] for _ in range(max(layer, default=-1) + 1)]
    for node, number in enumerate(layer):
        layers[number].append(node)
    _order(layers, above, below)
    centers = _centers(layers, boxes, above, below)
    tops = _tops(layers, boxes)
    left = min((c - b.width / 2 for c, b in zip(centers, boxes, strict=True)), default=0.0)
    corners = [(c - b.width / 2 - left, top) for c, b, top in zip(centers, boxes, tops, strict=True)]
    return Arrangement(
        tuple(corners[:count]),
        {edge: tuple((centers[n] - left, tops[n]) for n in path[1:-1]) for edge, path in paths.items()},
        max((x + b.width for (x, _), b in zip(corners, boxes, strict=True)), default=0.0),
        max((y + b.height for (_, y), b in zip(corners, boxes, strict=True)), default=0.0),
    )


def layers_of(count: int, edges: Collection[Edge]) -> list[int]:
    """Return the layer of each box: one below all that it depends on.

    A box that depends on nothing is just above the first that needs it.

    Args:
        count: The number of boxes.
        edges: Pairs of numbers of boxes; each leads to a higher number.
    """
    layer = [0] * count
    for a, b in sorted(edges):
        layer[b] = max(layer[b], layer[a] + 1)
    highest = dict.fromkeys({a for a, _ in edges} - {b for _, b in edges}, len(layer))
    for a, b in edges:
        if a in highest:
            highest[a] = min(highest[a], layer[b] - 1)
    return [highest.get(n, number) for n, number in enumerate(layer)]


def _order(layers: list[list[int]], above: Mapping[int, Sequence[int]], below: Mapping[int, Sequence[int]]) -> None:
    """Sort each layer by the means of the neighbours' places, down and up in turn."""
    place = {node: float(i) for nodes in layers for i, node in enumerate(nodes)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for nodes in layers if down else reversed(layers):
            neighbours = above if down else below
            means = {n: _mean([place[m] for m in neighbours.get(n, ())], place[n]) for n in nodes}
            nodes.sort(key=means.__getitem__)
            place.update((node, float(i)) for i, node in enumerate(nodes))


def _centers(
    layers: Sequence[Sequence[int]],
    boxes: Sequence[Box],
    above: Mapping[int, Sequence[int]],
    below: Mapping[int, Sequence[int]],
) -> list[float]:
    centers = [0.0] * len(boxes)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for nodes in layers if down else reversed(layers):
            neighbours = [(*above.get(n, ()), *below.get(n, ())) if sweep else above.get(n, ()) for n in nodes]
            wanted = [_mean([centers[m] for m in each], centers[n]) for n, each in zip(nodes, neighbours, strict=True)]
            apart = [_distance(boxes[a], boxes[b]) for a, b in pairwise(nodes)]
            for node, center in zip(nodes, _kept_apart(wanted, apart), strict=True):
                centers[node] = center
    return centers


def _kept_apart(wanted: Sequence[float], apart: Sequence[float]) -> list[float]:
    """Return the numbers nearest to ``wanted``, by the sum of squares, of which each is ``apart`` from the next one.

    Without the distances they have to ascend, which pooling adjacent violators gives.
    """
    shifts = [0.0]
    for distance in apart:
        shifts.append(shifts[-1] + distance)
    pools: list[tuple[float, int]] = []  # mean and count
    for number, shift in zip(wanted, shifts, strict=False):
        mean, count = number - shift, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean, count = (mean * count + other * others) / (count + others), count + others
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    return [mean + shift for mean, shift in zip(means, shifts, strict=False)]


def _distance(left: Box, right: Box) -> float:
    """Between the centers of two neighbours; lines need less room between them than boxes."""
    between = BETWEEN / 2 if PASSAGE in (left.width, right.width) else BETWEEN
    return (left.width + right.width) / 2 + between


def _tops(layers: Sequence[Sequence[int]], boxes: Sequence[Box]) -> list[float]:
    tops, top = [0.0] * len(boxes), 0.0
    for nodes in layers:
        for node in nodes:
            tops[node] = top
        top += max(boxes[n].height for n in nodes) + BELOW
    return tops


def _mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


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
        Lane(_lane_path(dots[source], dots[place]), source, place)
        for place, before in sources.items()
        for source in before
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


def _lane_path(source: Dot, target: Dot) -> str:
    """Down the source's lane to the line before the target, and then over to it."""
    if source.x == target.x:
        return f"M{source.x:g} {source.y:g}V{target.y:g}"
    above = target.y - LINE
    middle = target.y - LINE / 2
    bend = f"C{source.x:g} {middle:g} {target.x:g} {middle:g} {target.x:g} {target.y:g}"
    return f"M{source.x:g} {source.y:g}V{above:g}{bend}"
