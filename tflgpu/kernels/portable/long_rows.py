"""TOPK_V2 of long rows, in several kernels: runs in order, which are merged two by two.

One kernel that looks for each result among all channels takes quadratic time where all of them are wanted. The nodes
between work on indices, a run of them in each row; what is not among the first of a run is dropped. So an order is the
same for all element types, and equal elements keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tflgpu.graph.ir import Node, Tensor, TensorId
from tflgpu.graph.layout import Geometry, Shape
from tflgpu.graph.rewrite_rules import Built, Draft, Match, NewTensors, Rule, op, rewrite
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.fusing import epilogue_behind, kernel_inputs
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.arithmetic.scan import TopK
from tflgpu.ops.movement.indexing import Gather, Lookup, Position, follow
from tflgpu.ops.movement.shaping import AxisMap
from tflgpu.target import Target
from tflgpu.target.kernel_numbers import kernel_numbers


@dataclass(frozen=True, kw_only=True)
class SortNumbers:
    """Numbers of TOPK_V2 of long rows.

    Attributes:
        few: Comparisons of a row up to which one kernel finds all results.
        block: Channels of a run that are compared each with each: for fewer, merging is as fast.
        selected: Times that a block is longer than what is selected of it, at least, on CPUs.
        least_sorted: Channels from which on a core selects or sorts.
        least_block: Channels of the blocks that cores share, at least.
        loops: Turns of loops of a core for a channel.
    """

    few: int
    block: int
    selected: int
    least_sorted: int
    least_block: int
    loops: int


NUMBERS = kernel_numbers("portable/sorting", SortNumbers)


@dataclass(frozen=True)
class Runs:
    """Indices of the greatest of each block of ``block`` channels, in order: [rows * blocks, kept]."""

    block: int


@dataclass(frozen=True)
class Merge:
    """Two neighbouring runs of ``block`` channels each as one. Inputs: what is sorted, and the runs."""

    block: int


@PORTABLE.rewrite("divide")
def divide_sorts(planning: Planning) -> Planning:
    """Put several nodes for each ``top_k`` of long rows; values and indices of one operator share all but the last."""
    orders = dict[tuple[TensorId, int], TensorId]()

    def divide(match: Match) -> Built:
        node, graph, nodes = match.node, match.graph, list[Node]()
        source, shape = graph[node.inputs[0]], graph[node.output].shape
        if (source.id, shape[-1]) not in orders:
            nodes += _sort(node, source, shape, graph.new, planning.target)
            orders[source.id, shape[-1]] = nodes[-1].output
        return [*nodes, _result(node, orders[source.id, shape[-1]], len(shape))]

    graph = rewrite(planning.graph, [Rule("divide_sorts", op("top_k", where=_has_long_rows), divide)]).graph
    added = graph.tensors.keys() - planning.graph.tensors.keys()
    return planning.with_graph(graph, {t: Storage(Geometry(graph[t].shape), "int") for t in added})


def _has_long_rows(graph: Draft, node: Node) -> bool:
    shape = graph[node.output].shape
    return graph[node.inputs[0]].shape[-1] * shape[-1] > NUMBERS.few and 0 not in shape


def _sort(node: Node, source: Tensor, shape: Shape, new: NewTensors, target: Target) -> Iterator[Node]:
    """Yield the nodes that give the indices of the greatest channels, a tensor of ``shape``."""
    count, kept, rows = source.shape[-1], shape[-1], Geometry(source.shape).pixels
    kind, block = _first_kernel(count, kept, rows, target)
    runs = tile_count(count, block)
    # Who sorts a whole block needs room for it twice.
    first = (rows * runs, 2 * block if kind == "sorted_runs" else min(kept, block))
    found = new.add(Tensor(-1, "", first, "int32")).id
    yield Node(kind, (source.id,), found, Runs(block), sources=node.sources)
    last = False
    while not last:
        runs, last = tile_count(runs, 2), runs <= 2
        merged = shape if last else (rows * runs, min(kept, 2 * block))
        result = new.add(Tensor(-1, "", merged, "int32")).id
        yield Node("merged_runs", (source.id, found), result, Merge(block), sources=node.sources)
        found, block = result, 2 * block


def _first_kernel(count: int, kept: int, rows: int, target: Target) -> tuple[str, int]:
    """Return the kind of the node that gives the first runs, and the channels of a block.

    On CPUs a core selects the greatest of a long block, or sorts it, one channel after another.
    """
    most = target.limits.loop_turns // NUMBERS.loops
    if target.family != "cpu" or min(count, most) < NUMBERS.least_sorted:
        return "ranked_runs", NUMBERS.block
    selects = NUMBERS.selected * kept <= min(count, most)
    longest = count // max(NUMBERS.least_block, NUMBERS.selected * kept if selects else 0)
    shares = max(1, min(tile_count(target.compute_units, rows), longest))
    block = min(16 * tile_count(tile_count(count, shares), 16), most // 16 * 16)
    return "selected_runs" if selects else "sorted_runs", block


def _result(node: Node, order: TensorId, rank: int) -> Node:
    """Return the node for a ``top_k`` whose ``order`` is known: a copy of that, or the elements of its input in it."""
    attributes = node.attributes
    assert isinstance(attributes, TopK)
    kernel = (order,) if attributes.result == "indices" else (node.inputs[0], order)
    inputs, epilogue = (*kernel, *node.inputs[kernel_inputs(node) :]), epilogue_behind(node, len(kernel))
    if attributes.result == "indices":
        return Node("map", inputs, node.output, None, epilogue, node.sources)
    lookup = Lookup(1, tuple(AxisMap(axis) for axis in range(rank)), limit=None)
    positions = *map(follow, range(rank - 1)), Position((lookup,))
    return Node("gather", inputs, node.output, Gather(positions), epilogue, node.sources)
