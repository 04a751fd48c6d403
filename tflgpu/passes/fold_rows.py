"""Choose which nodes compute the rows of a matrix instead of the pixels of an image, so that the fewest tensors move.

PHWC4 has the elements of a row side by side in a matrix, and far apart in an image. Each tensor between two nodes that
differ moves once. That is a minimum cut: a node with another choice than its neighbour is on the other side of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import inf, prod

from tflgpu.graph.ir import Graph, TensorId
from tflgpu.graph.layout import LANES, Shape, geometry_of

MATRIX, IMAGE = "matrix", "image"

# Cost of a movement. A fully connected layer that becomes a convolution costs 1: its rows are read in wider pieces.
MOVEMENT = 4


@dataclass(frozen=True)
class Reading:
    """A tensor that a node reads row by row. output: what a node computes that can choose; None of any other node."""

    tensor: TensorId
    shape: Shape
    output: TensorId | None


def nodes_of_rows(
    graph: Graph, free: Iterable[TensorId], layers: Iterable[TensorId], readings: Iterable[Reading]
) -> frozenset[TensorId]:
    """Return the nodes that should compute rows of a matrix, by their outputs.

    Args:
        graph: The graph.
        free: What nodes that can choose compute, and what is moved in any case.
        layers: Of these the results of fully connected layers.
        readings: What is read of all these and of other tensors.

    Returns:
        Of ``free`` the tensors that become matrices.
    """
    free = frozenset(free)
    network = _Network()
    for layer in layers:
        network.connect(MATRIX, layer, 1)
    for reading in readings:
        shape = graph[reading.tensor].shape
        if prod(shape[:-1]) == 1 or shape[-1] == LANES:
            continue  # the same bytes in both
        writer = reading.tensor if reading.tensor in free else _place(graph, reading.tensor, shape)
        reader = reading.output if reading.output is not None else _place(graph, None, reading.shape)
        # All readers of a tensor that differ from its writer share one movement.
        network.connect(writer, (reading.tensor, "image"), MOVEMENT)
        network.connect((reading.tensor, "image"), reader, inf)
        network.connect(reader, (reading.tensor, "matrix"), inf)
        network.connect((reading.tensor, "matrix"), writer, MOVEMENT)
    return free & network.cut_off(MATRIX, IMAGE)


def is_row_major(shape: Shape) -> bool:
    """Whether the elements of a tensor's rows lie side by side."""
    return geometry_of(shape).plane == 1


def _place(graph: Graph, tensor: TensorId | None, shape: Shape) -> str:
    """Return what a tensor is whose shape nothing can choose. The host has the rows of inputs side by side."""
    has_whole_slices = geometry_of(shape).channels % LANES == 0
    return MATRIX if is_row_major(shape) or (tensor in graph.inputs and has_whole_slices) else IMAGE


class _Network:
    """Nodes, and how much may flow from one to another."""

    def __init__(self) -> None:
        self._capacity: dict[Hashable, dict[Hashable, float]] = defaultdict(dict)

    def connect(self, start: Hashable, end: Hashable, capacity: float) -> None:
        self._capacity[start][end] = capacity
        self._capacity[end].setdefault(start, 0)

    def cut_off(self, source: Hashable, sink: Hashable) -> frozenset[Hashable]:
        """Return the nodes on the source's side of the minimum cut that is nearest to it (Ford and Fulkerson)."""
        closed: set[Hashable] = set()  # nodes from which there is no way to the sink, now or later
        for first in list(self._capacity[source]):
            while self._capacity[source][first] > 0 and first not in closed:
                before = self._search(first, sink, closed)
                if sink not in before:
                    closed |= before.keys()
                    break
                before[first] = source
                edges, node = list[tuple[Hashable, Hashable]](), sink
                while node != source:
                    edges.append((before[node], node))
                    node = before[node]
                flow = min(self._capacity[a][b] for a, b in edges)
                for a, b in edges:
                    self._capacity[a][b] -= flow
                    self._capacity[b][a] += flow
        return frozenset(closed)

    def _search(self, first: Hashable, sink: Hashable, closed: set[Hashable]) -> dict[Hashable, Hashable]:
        """Each node that ``first`` reaches, up to the sink, and the node before it."""
        before: dict[Hashable, Hashable] = {first: first}
        ahead = [first]
        while ahead and sink not in before:
            node = ahead.pop()
            for other, capacity in self._capacity[node].items():
                if capacity > 0 and other not in before and other not in closed:
                    before[other] = node
                    ahead.append(other)
        return before
