"""Pieces that the device runs apart from the operators around them: loops that data end, and branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tflgpu.frontend.control_flow.callee import Callee
from tflgpu.frontend.partition import Partition
from tflgpu.graph.ir import Array, Graph, Tensor, TensorId, remove_dead
from tflgpu.graph.layout import Shape
from tflgpu.model.model import Operator
from tflgpu.model.run_time_numbers import Bound, Trim
from tflgpu.model.tensor_info import TensorIndex


@dataclass(frozen=True)
class LoweredPiece:
    """A graph of its own.

    inputs: the tensors of the file after its inputs. outputs: those after its outputs, if there are any; a
    boolean that says whether a loop goes on has none. output_types: the element types for callers. checks: faults for
    which the graph has a boolean each, after the outputs. trims: what is cut off of the outputs; the sizes that
    say how much come last.
    """

    graph: Graph
    inputs: tuple[TensorIndex, ...]
    outputs: tuple[TensorIndex, ...]
    output_types: tuple[str, ...]
    checks: tuple[str, ...] = ()
    trims: tuple[Trim, ...] = ()


@dataclass(frozen=True)
class Constant:
    """A result that is known before a run. tensor: of the file."""

    tensor: TensorIndex
    value: Array


@dataclass(frozen=True)
class Loop:
    """A WHILE whose state stays on the device.

    body: one iteration. Its states are what iterations hand on; its output, if there is one, says whether another
        iteration follows.
    condition: whether the first iteration follows; None if ``bounds`` tell the number of iterations.
    starts: the tensor of the file with the first value of each state; None for one that is known before a run.
    results: the tensor of the file that gets the last value of each state.
    passed: results that no iteration changes, each with the tensor of the file whose value it has.
    known: results that no iteration changes and that are known before a run.
    shapes: of all results.
    """

    body: LoweredPiece
    condition: LoweredPiece | None
    bounds: tuple[Bound, ...]
    starts: tuple[TensorIndex | None, ...]
    results: tuple[TensorIndex, ...]
    passed: Mapping[TensorIndex, TensorIndex]
    known: tuple[Constant, ...]
    shapes: tuple[Shape, ...]

    @property
    def pieces(self) -> tuple[LoweredPiece, ...]:
        """The body, and the condition if it is computed."""
        return (self.body,) if self.condition is None else (self.body, self.condition)


@dataclass(frozen=True)
class Branch:
    """An IF whose condition only a run can tell.

    condition: the tensor of the file that decides. then, otherwise: what is run. shapes: of all results.
    """

    condition: TensorIndex
    then: LoweredPiece
    otherwise: LoweredPiece
    shapes: tuple[Shape, ...]

    @property
    def pieces(self) -> tuple[LoweredPiece, ...]:
        """Both branches."""
        return (self.then, self.otherwise)


@dataclass(frozen=True)
class BodyPart:
    """A part of a loop's body. partition: of the body's subgraph. call: the loop or branch that it is, if it is one."""

    partition: Partition
    call: Call | None
    pieces: tuple[LoweredPiece, ...]


@dataclass(frozen=True)
class PartedLoop:
    """A WHILE whose body is several parts, because loops or branches are in it that only a run decides.

    Its state lies on the host. Tensors without further words are those of the body's subgraph.

    condition: whether an iteration follows.
    body: what an iteration runs, one after another.
    state, following: the tensors with the state before an iteration, and after it.
    starts: the caller's tensor with the first value of each; None for one that is known before a run.
    known: states that no iteration changes and that are known before a run.
    results: the caller's tensors that get the last values. shapes: of all of them.
    """

    condition: LoweredPiece
    body: tuple[BodyPart, ...]
    state: tuple[TensorIndex, ...]
    following: tuple[TensorIndex, ...]
    starts: tuple[TensorIndex | None, ...]
    known: tuple[Constant, ...]
    results: tuple[TensorIndex, ...]
    shapes: tuple[Shape, ...]

    @property
    def pieces(self) -> tuple[LoweredPiece, ...]:
        """The condition, and those of all parts of the body."""
        return (self.condition, *(piece for part in self.body for piece in part.pieces))


Call = Loop | Branch | PartedLoop


def place_inputs(callee: Callee, values: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors that stand for values of the caller in a graph of the callee's own.

    Args:
        callee: Gets the tensors as its inputs.
        values: In the order of these inputs.
    """
    graph, placed = callee.graph, []
    for index, value in zip(callee.subgraph.inputs, values, strict=True):
        graph.bind(index, replace(value, id=next(graph.ids)))
        placed.append(graph.bound[index])
    return placed


def piece_of(
    operator: Operator,
    callee: Callee,
    inputs: Mapping[TensorId, TensorIndex],
    results: Sequence[Tensor],
    outputs: tuple[TensorIndex, ...] = (),
) -> LoweredPiece:
    """Return a lowered subgraph as a piece that gives copies of results.

    Args:
        operator: The operator that calls it.
        callee: The lowered subgraph.
        inputs: The tensors that it may read, with the tensors of the file.
        results: The tensors to copy.
        outputs: The tensors of the file after the results.
    """
    graph = callee.graph
    copies = [graph.add_map(r, replace(r, id=next(graph.ids), data=None), operator=operator.index) for r in results]
    whole = Graph(graph.tensors, tuple(graph.nodes), tuple(inputs), tuple(t.id for t in copies))
    return with_read_inputs(whole, inputs, outputs)


def with_read_inputs(
    graph: Graph, inputs: Mapping[TensorId, TensorIndex], outputs: tuple[TensorIndex, ...] = ()
) -> LoweredPiece:
    """Return the piece of a graph, without the inputs that no node reads.

    Args:
        graph: The whole graph.
        inputs: Its inputs, with the tensors of the file.
        outputs: The tensors of the file after its outputs.
    """
    graph = remove_dead(graph)
    read = tuple(t for t in graph.inputs if t in graph.consumers)
    types = tuple(graph[t].dtype for t in graph.outputs)
    return LoweredPiece(replace(graph, inputs=read), tuple(inputs[t] for t in read), outputs, types)
