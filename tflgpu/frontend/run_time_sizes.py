"""Tensors with sizes that only a run can tell: each has an upper bound in memory, and a number on the device.

Sizes of tensors become numbers of the graph by SHAPE, and these numbers become sizes again. Between the two a file has
arithmetic and movements of a few integers, which are followed here. Integers are Amounts of ``tflgpu.ops.sized``.

In memory an open axis has an upper bound of its size. What comes after the elements that are meant is anything. A node
that computes each element of its output from elements at the same place passes the sizes on. A node that looks at all
elements of an open axis reads a copy, in which its neutral element is in place of those that are not meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Node, Tensor, TensorId, Value
from tflgpu.graph.layout import Shape
from tflgpu.ops.arithmetic.reduction import ArgExtreme, Reduce
from tflgpu.ops.arithmetic.scan import CumulativeSum
from tflgpu.ops.declaration import Emitter
from tflgpu.ops.evaluate import moved
from tflgpu.ops.movement.indexing import Digit, Gather, Lookup, follow
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange
from tflgpu.ops.sized import (
    MAX_ELEMENTS,
    NONE,
    Amount,
    Elements,
    Number,
    Open,
    Refused,
    Sizes,
    amount_of,
    elements_array,
    elements_of,
)


@dataclass(frozen=True)
class _Range:
    """An integer of which no more is known than that it lies between two others, or less."""

    low: int | None = None
    high: int | None = None


_Known = Amount | _Range


def computed_elements(
    node: Node, inputs: Sequence[Tensor], output: Tensor, found: Mapping[TensorId, Elements]
) -> Elements | None:
    """Return the elements of a node's output, if it is of few integers that follow from those of its inputs.

    Args:
        node: The node.
        inputs: Its inputs.
        output: Its output.
        found: Elements that are known, by tensor.
    """
    if output.dtype not in ("int32", "int64") or not 0 < output.size <= MAX_ELEMENTS:
        return None
    given = [elements_of(t, found) for t in inputs]
    base = _moved(node, inputs, given, output)
    if base is None:
        return None
    values: list[Any] = [base]
    for op in node.epilogue:
        given_operands = (values[o.index] if isinstance(o, Value) else given[o.index] for o in op.operands)
        operands = [operand for operand in given_operands if operand is not None]
        if len(operands) < len(op.operands):
            return None
        arrays = np.broadcast_arrays(*operands)
        flat = [_applied(op, each) for each in zip(*(a.reshape(-1) for a in arrays), strict=True)]
        values.append(elements_array(flat, arrays[0].shape))
    flat = list(np.broadcast_to(values[-1], output.shape).reshape(-1))
    return elements_array([_as_amount(e, output, place) for place, e in enumerate(flat)], output.shape)


def _as_amount(element: _Known, output: Tensor, place: int) -> Amount:
    if isinstance(element, Amount):
        return element
    return amount_of(Number(output.id, place, output, element.low, element.high))


def _moved(node: Node, inputs: Sequence[Tensor], given: Sequence[Elements | None], output: Tensor) -> Any:
    """Return what the node's kernel moves to its result; None for a node that computes, or fills places up."""
    attributes = node.attributes
    if isinstance(attributes, Rearrange | Gather) and attributes.fill is not None:
        return None
    if isinstance(attributes, Gather) and attributes.background is not None:
        return None
    own: list[Any] = []
    for i, tensor in enumerate(inputs):
        if i not in node.epilogue_inputs:
            is_index = isinstance(attributes, Gather) and i > 0
            own.append(tensor.data if is_index else given[i])
    return None if not own or any(e is None for e in own) else moved(node, own, output.shape)


def _applied(op: EpilogueOp, operands: Sequence[_Known]) -> _Known:
    """Return an elementwise function of integers."""
    if op.function in ("to_int", "to_long", "to_index"):
        return operands[0]
    if len(operands) == 2:
        a, b = operands
        if isinstance(a, Amount) and isinstance(b, Amount):
            exact = _exact(op.function, a, b)
            if exact is not None:
                return exact
        if op.function in _LIMITS:
            return _LIMITS[op.function](a, b)
    return _Range()


def _exact(function: str, a: Amount, b: Amount) -> Amount | None:
    if function in ("add", "sub"):
        return a.plus(b, 1 if function == "add" else -1)
    if function == "mul" and (a.known is not None or b.known is not None):
        return a.times(b.known) if b.known is not None else b.times(a.offset)
    if a.known is not None and b.known is not None and function in ("minimum", "maximum"):
        return Amount((min if function == "minimum" else max)(a.known, b.known))
    return a if a == b and function in ("minimum", "maximum") else None


def _extreme(choose: Callable[..., int], both_for_low: bool) -> Callable[[_Known, _Known], _Known]:
    def limits(a: _Known, b: _Known) -> _Known:
        lows, highs = ([v for v in pair if v is not None] for pair in ((a.low, b.low), (a.high, b.high)))
        low = choose(lows, default=None) if not both_for_low or len(lows) == 2 else None
        high = choose(highs, default=None) if both_for_low or len(highs) == 2 else None
        return _Range(low, high)

    return limits


_LIMITS = {"minimum": _extreme(min, both_for_low=True), "maximum": _extreme(max, both_for_low=False)}


class GraphSizes(Sizes):
    """The open axes of the tensors of a graph while it is lowered, found node by node."""

    def constants(self, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the tensors of whose elements each is known, as constants.

        Args:
            tensors: Outputs of nodes.
        """
        for tensor in tensors:
            amounts = self.elements.get(tensor.id)
            if tensor.data is None and amounts is not None and all(a.known is not None for a in amounts.reshape(-1)):
                values = [a.offset for a in amounts.reshape(-1)]
                yield replace(tensor, data=np.array(values, tensor.dtype).reshape(tensor.shape))

    def follow(self, emit: Emitter, tensors: Mapping[TensorId, Tensor]) -> None:
        """Find the open axes of all that an emitter's nodes compute, whose nodes may get others that mask their inputs.

        Args:
            emit: The nodes of one operator.
            tensors: The tensors that the nodes read besides.

        Raises:
            Refused: An open axis cannot be followed.
        """
        nodes, emit.nodes = emit.nodes, []
        known = {**tensors, **{t.id: t for t in emit.tensors}}
        for node in nodes:
            inputs = [known[i] for i in node.inputs]
            output = known[node.output]
            if node.output not in self.open:  # the operator has not said it already
                opens = [self.of(t) for t in inputs]
                if any(opens):
                    node, found = self._followed(emit, node, inputs, opens, output)
                    self.open[node.output] = found
            emit.nodes.append(node)
            if not any(self.of(t) for t in inputs) and node.output not in self.elements:
                elements = computed_elements(node, inputs, output, self.elements)
                if elements is not None:
                    self.elements[node.output] = elements

    def _followed(
        self, emit: Emitter, node: Node, inputs: Sequence[Tensor], opens: Sequence[Open], output: Tensor
    ) -> tuple[Node, Open]:
        """Return the node, perhaps with a masked input, and the open axes of its output."""
        own = [i for i in range(len(inputs)) if i not in node.epilogue_inputs]
        if node.kind == "map":
            return node, _broadcast([(inputs[i], opens[i]) for i in range(len(inputs))], output.shape)
        masked = node
        if opens[0]:
            fill, axes = _neutral(node, inputs[0])
            axes = [axis for axis in axes if axis in opens[0]]
            if axes:
                copy = self.masked(emit, inputs[0], axes, fill)
                masked = replace(node, inputs=(copy.id, *node.inputs[1:]))
                if node.kind not in _KEEP_AXES:
                    opens = [self.of(copy), *opens[1:]]
        found = _passed(node, [inputs[i] for i in own], [opens[i] for i in own], output)
        others = [(inputs[i], opens[i]) for i in sorted(node.epilogue_inputs)]
        return masked, _broadcast([(output, found), *others], output.shape)


# Kinds of nodes that go through an axis and give a number for each of its elements.
_KEEP_AXES = frozenset(("cumulative_sum", "softmax"))


def _broadcast(operands: Sequence[tuple[Tensor, Open]], shape: Shape) -> Open:
    """Return the open axes of what has the elements of several operands."""
    found: dict[int, Number] = {}
    for axis in range(len(shape)):
        sizes: set[Number | int] = set()
        for tensor, known in operands:
            own = axis - len(shape) + len(tensor.shape)
            if own >= 0:
                sizes.add(known.get(own, tensor.shape[own]))
        sizes.discard(1)
        size = _one(sizes)
        if isinstance(size, Number):
            found[axis] = size
    return found


def _one(sizes: set[Number | int]) -> Number | int | None:
    """Return the one size that an axis has; Refused if that differs, and one of them is open."""
    if len(sizes) > 1 and any(isinstance(size, Number) for size in sizes):
        raise Refused("sizes that only a run can tell have to be equal")
    return next(iter(sizes), None)


def _neutral(node: Node, x: Tensor) -> tuple[Any, Sequence[int]]:
    """Return what has to be in place of elements that are not meant, and along which axes."""
    least, greatest = _limits(x.dtype)
    match node.attributes:
        case Reduce(function, axes):
            fills = {
                "mean": np.nan,
                "sum": 0,
                "sum_of_squares": 0,
                "prod": 1,
                "any": 0,
                "all": 1,
                "max": least,
                "min": greatest,
            }
            return fills[function], axes
        case ArgExtreme(axis, is_greatest):
            return least if is_greatest else greatest, (axis,)
        case CumulativeSum(axis, _, reverse):
            return 0, (axis,) if reverse else ()
    if node.kind == "softmax":
        return -np.inf, (len(x.shape) - 1,)
    if node.kind == "suppress":
        return -np.inf, (len(x.shape) - 1,)
    return 0, ()


def _limits(dtype: str) -> tuple[Any, Any]:
    kind = np.dtype(dtype).kind
    if kind == "f":
        return -np.inf, np.inf
    return (0, 1) if kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def _passed(node: Node, inputs: Sequence[Tensor], opens: Sequence[Open], output: Tensor) -> Open:
    """Return the open axes of what a node's kernel computes. Raises Refused."""
    source, known = inputs[0], opens[0]
    attributes = node.attributes
    if isinstance(attributes, Rearrange):
        return _rearranged(attributes, source, known, output)
    if isinstance(attributes, Gather):
        return _gathered(attributes, inputs, opens, output)
    if isinstance(attributes, Concatenate):
        if any(attributes.axis in each for each in opens):
            raise Refused("what is joined to it begins at a place that only a run can tell")
        return _broadcast([*zip(inputs, opens, strict=True)], output.shape)
    if any(opens[1:]) and node.kind != "suppress":
        raise Refused(f"a {node.kind} reads it")
    rank = len(source.shape)
    if node.kind == "reshape":
        return _reshaped(source, known, output)
    if isinstance(attributes, Reduce | ArgExtreme) or node.kind in _KEEP_AXES:
        return known  # what they go through was masked
    if node.kind == "suppress":
        return _suppressed(inputs, opens)
    if node.kind == "fully_connected" and rank - 1 not in known:
        return _rows(source, known, output)
    if node.kind == "top_k" and rank - 1 not in known:
        return known
    if node.kind in _OF_IMAGES and set(known) == {0} and output.shape[0] == source.shape[0]:
        return known
    raise Refused(f"a {node.kind} reads it")


# Kinds of nodes that compute each image of a batch for itself.
_OF_IMAGES = frozenset(("convolution", "depthwise", "pool", "resize_bilinear"))


def _rearranged(attributes: Rearrange, source: Tensor, known: Open, output: Tensor) -> Open:
    found: dict[int, Number] = {}
    for axis, m in enumerate(attributes.axes):
        if axis in known:
            others = [other for i, other in enumerate(attributes.axes) if i != axis]
            if m.axis is None or any(other.axis == m.axis for other in others):
                raise Refused("one element of it is taken")
            if (m.start, m.step) != (0, 1) or output.shape[m.axis] != source.shape[axis]:
                raise Refused("a part of it is taken")
            found[m.axis] = known[axis]
    return found


def _gathered(attributes: Gather, inputs: Sequence[Tensor], opens: Sequence[Open], output: Tensor) -> Open:
    if attributes.background is not None:
        raise Refused("it is written into another tensor")
    sizes: list[set[Number | int]] = [set() for _ in output.shape]
    for axis, position in enumerate(attributes.positions):
        size, extent = opens[0].get(axis), inputs[0].shape[axis]
        plain = next((a for a in range(len(output.shape)) if position == follow(a)), None)
        if plain is not None:
            if size is not None and output.shape[plain] != extent:
                raise Refused("a part of it is taken")
            sizes[plain].add(size or output.shape[plain])
        elif size is not None and any(isinstance(term, Digit) for term in position.terms):
            raise Refused("its elements are moved by arithmetic")
        for term in position.terms:
            if isinstance(term, Lookup):
                _look_up(term, inputs[term.input], opens[term.input], sizes)
            elif plain is None:
                sizes[term.axis].add(output.shape[term.axis])
    found: dict[int, Number] = {}
    for axis, each in enumerate(sizes):
        each.discard(1)
        one = _one(each)
        if isinstance(one, Number):
            found[axis] = one
    return found


def _look_up(term: Lookup, indices: Tensor, known: Open, sizes: Sequence[set[Number | int]]) -> None:
    for axis, m in enumerate(term.places):
        if axis in known and m != AxisMap(m.axis):
            raise Refused("a part of it is taken")
        if axis in known and m.axis is None:
            raise Refused("one element of it is taken")
        if m.axis is not None:
            sizes[m.axis].add(known.get(axis, indices.shape[axis]))


def _reshaped(source: Tensor, known: Open, output: Tensor) -> Open:
    """Axes of size 1 come and go; axes after the open one are joined if that is the first of another size than 1."""
    old, new = ([axis for axis, size in enumerate(shape) if size != 1] for shape in (source.shape, output.shape))
    if any(source.shape[axis] == 1 for axis in known):
        raise Refused("its axes of size 1 change")
    if [source.shape[a] for a in old] == [output.shape[a] for a in new]:
        return {new[old.index(axis)]: size for axis, size in known.items()}
    first = old[0]
    keeps_rows = new and output.shape[new[0]] == source.shape[first]
    if keeps_rows and set(known) == {first} and prod(source.shape[first:]) == prod(output.shape[new[0] :]):
        return {new[0]: known[first]}
    raise Refused("its elements get another shape")


def _rows(source: Tensor, known: Open, output: Tensor) -> Open:
    if source.shape[:-1] != output.shape[:-1]:
        raise Refused("its rows get another shape")
    return known


def _suppressed(inputs: Sequence[Tensor], opens: Sequence[Open]) -> Open:
    """Scores [boxes] and boxes [boxes, 4]. Scores that are not meant are less than every threshold."""
    if len(inputs[0].shape) != 1 or (opens[1] and set(opens[1]) != {0}):
        raise Refused("the boxes of several rows of scores have a size that only a run can tell")
    return NONE
