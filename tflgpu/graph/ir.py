"""The graph that passes rewrite: immutable, in execution order, checked by :func:`verify`.

A node's kernel computes value 0. Its *epilogue* follows, a list of elementwise epilogue ops in single-assignment form:
epilogue op k computes value k + 1, and the last value is stored. Fusing an elementwise operator into its producer
appends to that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from operator import is_
from typing import Any, Literal, TypedDict, Unpack
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.layout import Shape

Array = NDArray[Any]


class Deferred:
    """Elements that ``compute`` gives, anew if the array of the last time is freed.

    So the weights of a quantized model are never in memory as floats all at once: a layer has them while it is planned.
    """

    def __init__(self, compute: Callable[[], Array], size: int) -> None:
        """size: bytes of the array."""
        self.nbytes = size
        self._compute = compute
        self._last: ref[Array] | None = None

    def array(self) -> Array:
        """Return the elements, which nothing may change."""
        array = None if self._last is None else self._last()
        if array is None:
            array = self._compute()
            self._last = ref(array)
        return array


class Elements:
    """The field ``data`` of a tensor of the graph: reading it gives an array, also where :class:`Deferred` was set."""

    def __get__(self, tensor: object, owner: type) -> Array | None:
        stored = stored_elements(tensor)
        return stored.array() if isinstance(stored, Deferred) else stored

    def __set__(self, tensor: object, value: Array | Deferred | None) -> None:
        # A dataclass whose caller leaves the field out sets the default, which is this object.
        vars(tensor)["data"] = None if isinstance(value, Elements) else value


def stored_elements(tensor: object) -> Array | Deferred | None:
    """Return the field ``data`` as it was set, without computing elements that are deferred.

    Args:
        tensor: A :class:`tflgpu.graph.ir.Tensor`, or one of the file.
    """
    stored: Array | Deferred | None = vars(tensor)["data"]
    return stored


TensorId = int

# Why half precision would spoil a tensor: it may exceed 65504; small numbers of it would become zero; its rounding is
# multiplied by what reads it; it decides an index, a branch or a whole number; it is a mean whose differences count; it
# holds large whole numbers; or a run found it to matter.
KeptFor = Literal["", "overflow", "underflow", "cancellation", "index", "mean", "whole", "measured"]


class Marks(TypedDict, total=False):
    """Fields that :meth:`Tensor.changed` may change."""

    precise: bool
    dynamic: bool
    wide: bool
    kept_for: KeptFor


@dataclass(frozen=True)
class Tensor:
    """A value of the graph. ``data`` is set for constants, row-major and of ``shape``.

    precise: stored in float in every precision, because its values need more digits than half has.
    wide: stored in float as well, but not the weights of the sum that it is.
    kept_for: the reason why an analysis or a check marked it as precise or wide; ``""`` without one.
    scale: of a quantized constant, the numbers of which its values are whole multiples; it broadcasts to ``data``,
        or has one for each block of a row, where that is a matrix.
    factor: what the numbers in memory have to be multiplied by.
    dynamic: of quantized weights, whether LiteRT's kernels quantize at run time what they multiply (dynamic range).
    parts: of complex numbers, the tensors that hold their real and their imaginary parts. No node computes the tensor
        itself.
    """

    id: TensorId
    name: str
    shape: Shape
    dtype: str = "float32"
    data: Elements = field(default=Elements(), compare=False, repr=False)
    precise: bool = False
    scale: Array | None = field(default=None, compare=False, repr=False)
    factor: float = 1.0
    dynamic: bool = False
    parts: tuple[Tensor, Tensor] | None = field(default=None, compare=False, repr=False)
    wide: bool = False
    kept_for: KeptFor = ""

    @property
    def is_constant(self) -> bool:
        """Whether its elements are known when the model is compiled."""
        return stored_elements(self) is not None

    @property
    def constant_bytes(self) -> int:
        """The bytes of a constant, else 0."""
        stored = stored_elements(self)
        return 0 if stored is None else stored.nbytes

    def changed(self, **marks: Unpack[Marks]) -> Tensor:
        """Return this tensor with other marks. Unlike ``replace`` it does not compute the elements.

        Args:
            **marks: New values of fields.
        """
        tensor = copy(self)
        for name, value in marks.items():
            object.__setattr__(tensor, name, value)
        return tensor

    @property
    def size(self) -> int:
        """How many elements it has."""
        return prod(self.shape)


@dataclass(frozen=True)
class Value:
    """Value ``index`` of the node itself: 0 is what its kernel computes, k + 1 what epilogue op k computes."""

    index: int


@dataclass(frozen=True)
class Input:
    """The node's input ``index``, broadcast to the output's shape and read at the element being computed.

    An input of fewer channels than the output, but of several, is zero after its last one.
    """

    index: int


Operand = Value | Input


@dataclass(frozen=True)
class EpilogueOp:
    """One elementwise function of ``tflgpu.ops.epilogue_ops``, with operands and constant parameters."""

    function: str
    operands: tuple[Operand, ...]
    parameters: tuple[float, ...] = ()

    def moved(self, place: Callable[[Operand], Operand]) -> EpilogueOp:
        """Return the same op for another node.

        Args:
            place: Gives the operand there for each operand here.
        """
        return replace(self, operands=tuple(map(place, self.operands)))


@dataclass(frozen=True)
class Node:
    """Computation of one kernel.

    output: where the epilogue's last value is stored. attributes: a frozen dataclass of the kind. sources: indices of
    the model's operators that the node computes. side_outputs: what its kernel writes besides. in_place: inputs and
    output share their memory, so that the node needs no kernel: a ``reshape`` whose elements keep their order there,
    a ``concatenate`` whose inputs are computed inside its result, or a slice (``rearrange`` or ``strided``) that is one
    range of its input's memory. views: of inputs by number, the movement (a ``Strided``) through which a ``map`` reads
    them, so that they have the output's shape.
    """

    kind: str
    inputs: tuple[TensorId, ...]
    output: TensorId
    attributes: object = None
    epilogue: tuple[EpilogueOp, ...] = ()
    sources: tuple[int, ...] = ()
    side_outputs: tuple[TensorId, ...] = ()
    in_place: bool = False
    views: tuple[tuple[int, object], ...] = ()

    @property
    def outputs(self) -> tuple[TensorId, ...]:
        """All that the node writes."""
        return self.output, *self.side_outputs

    @property
    def is_view(self) -> bool:
        """Whether the output is the memory of the only input, in another shape."""
        return self.in_place and self.kind == "reshape"

    @property
    def title(self) -> str:
        """Its kind and the model's operators that it computes, for messages."""
        operators = ", ".join(map(str, self.sources))
        return f"the {self.kind} of operator {operators}" if operators else f"a {self.kind} of no operator"

    @property
    def epilogue_inputs(self) -> frozenset[int]:
        """Positions of the inputs that epilogue ops read."""
        return frozenset(o.index for op in self.epilogue for o in op.operands if isinstance(o, Input))


@dataclass(frozen=True)
class State:
    """A variable, which keeps its value from one run to the next.

    read: the tensor that holds the value when a run starts. written: the tensor whose value the next run finds in
    ``read``. A node computes it; no node reads it, and it is neither an output nor another state's. Or it is the same
    tensor: a run leaves the value as it is.
    initial: row-major, None for zeros. held: whether callers hold its memory, so that several values take turns.
    """

    name: str
    read: TensorId
    written: TensorId
    initial: Array | None = field(default=None, compare=False, repr=False)
    held: bool = False


def epilogue_after_first(epilogue: tuple[EpilogueOp, ...]) -> tuple[EpilogueOp, ...]:
    """Return the ops after the first, whose result is now value 0.

    Args:
        epilogue: No later op may read the old value 0.
    """

    def place(operand: Operand) -> Operand:
        return Value(operand.index - 1) if isinstance(operand, Value) else operand

    return tuple(op.moved(place) for op in epilogue[1:])


def joint_sources(*nodes: Node) -> tuple[int, ...]:
    """Return the operators that several nodes compute, each once, in the nodes' order.

    Args:
        *nodes: Nodes that become one.
    """
    return tuple(dict.fromkeys(source for node in nodes for source in node.sources))


@dataclass(frozen=True)
class Graph:
    """Nodes in execution order over tensors by id."""

    tensors: Mapping[TensorId, Tensor]
    nodes: tuple[Node, ...]
    inputs: tuple[TensorId, ...]
    outputs: tuple[TensorId, ...]
    states: tuple[State, ...] = ()

    def __getitem__(self, tensor: TensorId) -> Tensor:
        return self.tensors[tensor]

    @cached_property
    def given(self) -> frozenset[TensorId]:
        """The tensors other than constants that hold a value before the first node runs."""
        return frozenset((*self.inputs, *(s.read for s in self.states)))

    @cached_property
    def wanted(self) -> frozenset[TensorId]:
        """The tensors that are needed after the last node runs."""
        return frozenset((*self.outputs, *(s.written for s in self.states if s.written != s.read)))

    @cached_property
    def constant_bytes(self) -> int:
        """The bytes of all constants."""
        return sum(t.constant_bytes for t in self.tensors.values())

    @cached_property
    def producer(self) -> Mapping[TensorId, Node]:
        """The node that computes each tensor."""
        return {tensor: node for node in self.nodes for tensor in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[TensorId, tuple[Node, ...]]:
        """The nodes that read each tensor; a node is listed once for each input that reads it."""
        readers: dict[TensorId, list[Node]] = {}
        for node in self.nodes:
            for tensor in node.inputs:
                readers.setdefault(tensor, []).append(node)
        return {tensor: tuple(nodes) for tensor, nodes in readers.items()}

    def sole_consumer(self, tensor: TensorId) -> Node | None:
        """Return the one node that reads a tensor.

        Args:
            tensor: Any tensor of the graph.

        Returns:
            None if it is read never or several times, or is :attr:`wanted`.
        """
        readers = self.consumers.get(tensor, ())
        return readers[0] if len(readers) == 1 and tensor not in self.wanted else None

    def constant(self, tensor: TensorId) -> Array | None:
        """Return the elements of a tensor; None if they are computed.

        Args:
            tensor: Any tensor of the graph.
        """
        return self.tensors[tensor].data

    def of_kind(self, *kinds: str) -> tuple[Node, ...]:
        """Return the nodes of some kinds, in execution order.

        Args:
            *kinds: The kinds that are meant.
        """
        return tuple(node for node in self.nodes if node.kind in kinds)

    def with_each(self, change: Callable[[Node], Node], new_tensors: Iterable[Tensor] = ()) -> Graph:
        """Return the same graph with what a function makes of each node.

        Args:
            change: Is called in execution order.
            new_tensors: As those of :meth:`with_nodes`; they are asked for after the last call.
        """
        return self.with_nodes(map(change, self.nodes), new_tensors)

    def with_replaced(self, replaced: Mapping[TensorId, Sequence[Node]], new_tensors: Iterable[Tensor] = ()) -> Graph:
        """Return the same graph with other nodes in the place of some.

        Args:
            replaced: What takes the place of a node, by its output; none where the node is left out.
            new_tensors: As those of :meth:`with_nodes`.
        """
        nodes = (new for node in self.nodes for new in replaced.get(node.output, (node,)))
        return self.with_nodes(nodes, new_tensors)

    def with_nodes(self, nodes: Iterable[Node], new_tensors: Iterable[Tensor] = ()) -> Graph:
        """Return the same graph with other nodes, without the tensors that are no longer used.

        Args:
            nodes: All nodes, in an order of execution.
            new_tensors: Tensors of these nodes that the graph does not have.

        Returns:
            The graph itself if the nodes are its own and there are no new tensors.
        """
        nodes, new_tensors = tuple(nodes), tuple(new_tensors)
        if len(nodes) == len(self.nodes) and all(map(is_, nodes, self.nodes)) and not new_tensors:
            return self
        known = dict(self.tensors) | {t.id: t for t in new_tensors}
        alive = {*self.given, *self.wanted, *(t for n in nodes for t in (*n.outputs, *n.inputs))}
        return replace(self, tensors={i: t for i, t in known.items() if i in alive}, nodes=nodes)


def remove_dead(graph: Graph) -> Graph:
    """Drop the nodes whose result reaches no output and no state."""
    wanted, kept = set(graph.wanted), []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted.update(node.inputs)
    return graph if len(kept) == len(graph.nodes) else graph.with_nodes(reversed(kept))


def roots(graph: Graph) -> dict[TensorId, TensorId]:
    """Every activation -> the tensor whose memory it has; a view has its source's."""
    root = {t: t for t in graph.given}
    for node in graph.nodes:
        root |= {t: root[node.inputs[0]] if node.is_view else t for t in node.outputs}
    return root


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Whether numpy would broadcast a shape to another one.

    Args:
        shape: The smaller one.
        target: The shape of the result.
    """
    tail = target[len(target) - len(shape) :] if len(shape) <= len(target) else None
    return tail is not None and all(d in (1, t) for d, t in zip(shape, tail, strict=True))


def scales(shape: Shape, target: Shape) -> bool:
    """Whether a constant can have scales of a shape: they broadcast, or there is one for each block of a row.

    Args:
        shape: The shape of the scales.
        target: The shape of the constant.
    """
    is_blocks = len(shape) == len(target) == 2 and shape[0] == target[0] and shape[1] and target[1] % shape[1] == 0
    return bool(is_blocks) or broadcasts_to(shape, target)


def extends_to(shape: Shape, target: Shape) -> bool:
    """Whether zeros after the last channel of several make a tensor of one shape one of another.

    Args:
        shape: The tensor's own shape.
        target: The shape with more channels.
    """
    return 0 < len(shape) == len(target) and shape[:-1] == target[:-1] and 1 < shape[-1] < target[-1]


def verify(graph: Graph, *, states_are_alone: bool = True) -> None:
    """Check the rules that every pass must keep.

    Args:
        graph: The result of a pass.
        states_are_alone: Whether nothing but its state may have a next value.

    Raises:
        AssertionError: A rule is broken, which is a bug in the pass before, never in the model. It is raised under
            ``python -O``, too.
    """
    for broken in _broken_rules(graph, states_are_alone):
        raise AssertionError(broken)


def _broken_rules(graph: Graph, states_are_alone: bool) -> Iterator[str]:
    constants = {t.id for t in graph.tensors.values() if t.is_constant}
    if len(graph.given) != len(graph.inputs) + len(graph.states):
        yield "two of inputs and states are one tensor"
    if graph.given & constants:
        yield "an input or a state's value is a constant"
    defined = {*graph.given, *constants}
    for tensor in graph.tensors.values():
        stored = stored_elements(tensor)
        if isinstance(stored, np.ndarray) and stored.shape != tensor.shape:
            yield f"constant {tensor} has data of another shape"
        if tensor.scale is not None and not tensor.is_constant:
            yield f"{tensor} has a scale, but is no constant"
        if tensor.scale is not None and not scales(tensor.scale.shape, tensor.shape):
            yield f"the scale of {tensor} does not broadcast to it"
    for node in graph.nodes:
        missing = [i for i in node.inputs if i not in defined]
        if missing:
            yield f"{node.kind} reads tensors {missing} before anything writes them"
        if written := defined.intersection(node.outputs):
            yield f"tensors {sorted(written)} are written twice"
        if node.in_place:
            yield from _in_place_faults(graph, node)
        if node.kind == "reshape" and graph[node.inputs[0]].size != graph[node.output].size:
            yield f"{node.kind} makes {graph[node.output].shape} of {graph[node.inputs[0]].shape}"
        for k, op in enumerate(node.epilogue):
            yield from (f"epilogue op {k} of {node.kind} {fault}" for fault in _operand_faults(graph, node, k, op))
        defined.update(node.outputs)
    if not all(t in defined for t in graph.outputs):
        yield "an output of the graph is never written"
    for state in graph.states:
        yield from _state_faults(graph, state, states_are_alone)


def _in_place_faults(graph: Graph, node: Node) -> Iterator[str]:
    if node.kind not in ("reshape", "concatenate", "rearrange", "strided"):
        yield f"{node.kind} {node.output} cannot be in place"
    if node.epilogue:
        yield f"{node.kind} {node.output} is in place and has an epilogue, which needs a kernel"
    if any(graph[i].dtype != graph[node.output].dtype for i in node.inputs):
        yield f"{node.kind} {node.output} is in place of another element type"
    if any(graph[i].is_constant for i in node.inputs):
        yield f"{node.kind} {node.output} is in place of a constant, which has no place in memory"


def _operand_faults(graph: Graph, node: Node, position: int, op: EpilogueOp) -> Iterator[str]:
    for operand in op.operands:
        if isinstance(operand, Value):
            if operand.index > position:
                yield "reads a later value"
        elif operand.index >= len(node.inputs):
            yield "reads an absent input"
        elif operand.index not in dict(node.views):
            shapes = graph[node.inputs[operand.index]].shape, graph[node.output].shape
            if not broadcasts_to(*shapes) and not extends_to(*shapes):
                yield f"cannot broadcast {shapes}"


def _state_faults(graph: Graph, state: State, is_alone: bool) -> Iterator[str]:
    if state.written == state.read:
        return
    read, written = graph[state.read], graph[state.written]
    if (read.shape, read.dtype) != (written.shape, written.dtype):
        yield f"state {state.name} becomes another type"
    if state.initial is not None and state.initial.shape != read.shape:
        yield f"state {state.name} begins in another shape"
    if state.written not in graph.producer:
        yield f"no node computes the next value of state {state.name}"
    uses = [s.written for s in graph.states].count(state.written) + graph.outputs.count(state.written)
    if is_alone and (uses != 1 or state.written in graph.consumers):
        yield f"the next value of state {state.name} is not its alone"
