"""Results of lowering: the graph, what became of each operator, and whether two of them differ in the batch only.

Rows are the elements along the first axis of every input and output. What a node does to an axis of a size that only a
run can tell is known already (:class:`~tflgpu.frontend.run_time_sizes.GraphSizes`): it computes the elements
that are meant without those that are not, or says that it cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tflgpu.frontend.control_flow.pieces import Call
from tflgpu.frontend.run_time_sizes import GraphSizes
from tflgpu.graph.ir import Graph, Node, Tensor
from tflgpu.graph.layout import Shape
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.model.file_checks import LEAST_CUSTOM
from tflgpu.model.model import FileTensor
from tflgpu.model.run_time_numbers import Trim
from tflgpu.model.tensor_info import TensorIndex
from tflgpu.ops import Emitter
from tflgpu.ops.arithmetic.scan import CumulativeSum
from tflgpu.ops.movement.indexing import Gather, follow
from tflgpu.ops.sized import Number, Open, Refused

# Custom operators that LiteRT, hence a CPU fallback, can run. Any other name is unknown.
KNOWN_CUSTOM = frozenset(LEAST_CUSTOM)


@dataclass(frozen=True)
class Entry:
    """Decision of the lowering about one operator of the model.

    reasons: why it cannot run on the device. cpu_reasons: why LiteRT cannot run it either. notes: how its result may
    differ from that of the file's integers.
    """

    index: int
    code: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    custom: bool
    cpu_reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lowered:
    """The graph of all operators that can run, and an entry for each operator whether it can or not.

    ``graph`` is complete, and fit to run, only if :attr:`is_whole`. ``inputs`` and ``outputs`` are the file's
    tensors after the graph's, in the same order, under the names that callers use.
    bound: what stands for each tensor of the file, with its shape, and its value if that is known before a run.
    open: tensors of the file whose shape only a run can tell.
    checks: faults that a run must not find. After the outputs the graph has a boolean for each.
    calls: operators that the device runs apart from the others, by index.
    trims: what a run cuts off of the outputs. After the checks the graph has the sizes that say how much.
    """

    graph: Graph
    entries: tuple[Entry, ...]
    inputs: tuple[tuple[str, FileTensor], ...]
    outputs: tuple[tuple[str, FileTensor], ...]
    bound: Mapping[TensorIndex, Tensor]
    open: frozenset[TensorIndex]
    checks: tuple[str, ...]
    calls: Mapping[int, Call]
    trims: tuple[Trim, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether one piece on the device is all of it."""
        return not self.obstacles and not self.calls

    @property
    def obstacles(self) -> tuple[str, ...]:
        """A sentence for each reason why an operator cannot run on the device."""
        return tuple(f"operator {e.index} {e.code}: {reason}" for e in self.entries for reason in e.reasons)

    @property
    def cuts(self) -> tuple[str, ...]:
        """Why it is not one piece on the device."""
        calls = (e for e in self.entries if e.index in self.calls)
        return (
            *self.obstacles,
            *(f"operator {e.index} {e.code}: it is a piece of its own on the device" for e in calls),
        )

    @property
    def output_types(self) -> list[str]:
        """The element types of the graph's outputs, as the file has them."""
        sizes = len(self.graph.outputs) - len(self.outputs) - len(self.checks)
        return [*(tensor.dtype for _, tensor in self.outputs), *("bool" for _ in self.checks), *["int32"] * sizes]

    @property
    def output_shapes(self) -> list[Shape]:
        """Shapes of the file's outputs; the file's for an output whose shape only a run can tell."""
        trimmed = {trim.output for trim in self.trims}
        return [
            tensor.shape if number in trimmed else self.graph[self.graph.outputs[number]].shape
            for number, (_, tensor) in enumerate(self.outputs)
        ]

    @property
    def unknown(self) -> tuple[str, ...]:
        """Obstacles that no CPU helps against: unknown custom operators."""
        custom = (e for e in self.entries if e.custom and e.reasons and e.code not in KNOWN_CUSTOM)
        return tuple(f"operator {e.index}: {reason}" for e in custom for reason in e.reasons)

    @property
    def nowhere(self) -> tuple[str, ...]:
        """Why operators can run neither on the device nor on the CPU."""
        return tuple(reason for e in self.entries for reason in e.cpu_reasons)

    @property
    def known(self) -> frozenset[TensorIndex]:
        """The tensors whose values are known before a run: constants, and what follows from them and from shapes."""
        return frozenset(index for index, tensor in self.bound.items() if tensor.is_constant)

    @property
    def capable(self) -> frozenset[int]:
        """The operators that can run on the device."""
        return frozenset(e.index for e in self.entries if not e.reasons)


def rows_of(graph: Graph) -> int | None:
    """How many rows each input of a graph has; None if they have different numbers, or none."""
    rows = {graph[t].shape[0] if graph[t].shape else None for t in graph.inputs}
    return rows.pop() if len(rows) == 1 else None


def has_same_rows(one: Lowered, other: Lowered) -> bool:
    """Tell whether runs of one lowering can compute a batch of the other one.

    Args:
        one: A lowered model.
        other: The same model with another batch.
    """
    graphs = one.graph, other.graph
    rows = [rows_of(graph) for graph in graphs]
    if None in rows or rows[0] == rows[1] or any(x.checks or x.trims or x.open or not x.is_whole for x in (one, other)):
        return False
    larger = max(graphs, key=lambda graph: rows_of(graph) or 0)
    return _are_alike(*graphs) and _are_independent(larger)


def _are_independent(graph: Graph) -> bool:
    rows = rows_of(graph) or 0
    number = Number(-1, 0, Tensor(-1, "", (), "int32"), 1, rows)
    sizes, emit = GraphSizes(), Emitter(NewTensors(graph).ids, 0)
    sizes.open = {tensor: {0: number} for tensor in graph.inputs}
    emit.nodes = list(graph.nodes)
    try:
        sizes.follow(emit, graph.tensors)
    except Refused:
        return False
    is_masked = len(emit.nodes) > len(graph.nodes)  # a node looks at all rows
    if graph.states or is_masked or any(_mixes(node, sizes.open.get(node.inputs[0], {})) for node in graph.nodes):
        return False
    return all(sizes.open.get(t) == {0: number} for t in graph.outputs)


def _mixes(node: Node, rows: Open) -> bool:
    """Whether a row of a node's result depends on other rows that are meant, which open axes allow."""
    match node.attributes:
        case CumulativeSum(axis=axis):
            return axis in rows
        case Gather(positions=positions):
            return any(positions[axis] not in map(follow, range(len(positions) + 8)) for axis in rows)
    return node.kind == "suppress" and bool(rows)


def _are_alike(one: Graph, other: Graph) -> bool:
    """Whether both have the same nodes and constants."""
    if len(one.nodes) != len(other.nodes) or len(one.inputs) != len(other.inputs):
        return False
    twins = dict(zip(one.inputs, other.inputs, strict=True))
    for a, b in zip(one.nodes, other.nodes, strict=True):
        if repr((a.kind, a.attributes, a.epilogue, a.views)) != repr((b.kind, b.attributes, b.epilogue, b.views)):
            return False
        if len(a.inputs) != len(b.inputs) or len(a.outputs) != len(b.outputs):
            return False
        for mine, its in zip(a.inputs, b.inputs, strict=True):
            if mine not in twins and not _are_equal(one[mine], other[its]):
                return False
            if twins.setdefault(mine, its) != its:
                return False
        twins |= zip(a.outputs, b.outputs, strict=True)
    return [twins.get(t) for t in one.outputs] == list(other.outputs)


def _are_equal(one: Tensor, other: Tensor) -> bool:
    mine, its = one.data, other.data
    if mine is None or its is None or (mine.shape, mine.dtype) != (its.shape, its.dtype):
        return False
    return np.ascontiguousarray(mine).tobytes() == np.ascontiguousarray(its).tobytes()
