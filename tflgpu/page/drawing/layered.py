"""A layered drawing of a graph: boxes below those that they depend on, branches side by side.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures"
(1981): layers by the longest path, points on which long edges pass a layer, orders and places by the means of
neighbours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tflgpu.page.drawing.chains import Edge

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
