"""Move transposes towards the outputs, past nodes that do not need them, until they meet their inverse.

Networks from channels-first frameworks have a pair of transposes around each convolution. Between two pairs are
elementwise functions, padding and concatenations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.graph.layout import Shape, keeps_bytes
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange

Order = tuple[int, ...]  # of axes, as numpy.transpose takes it


@dataclass(frozen=True)
class Transposed:
    """A tensor that is ``source`` with its axes in another order. sources: the model's operators that transpose."""

    source: TensorId
    order: Order
    sources: tuple[int, ...]


def sink_transposes(graph: Graph) -> Graph:
    """Transpose as late as possible, so that pairs of inverse transposes vanish.

    Returns ``graph`` itself if the result is not shorter: one transpose that several nodes read may become several.
    """
    sunk = _Sinking(graph).run()
    return sunk if len(sunk.nodes) < len(graph.nodes) else graph


class _Sinking:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors = NewTensors(graph)
        self._nodes: list[Node] = []
        self._transposed: dict[TensorId, Transposed] = {}
        self._written: set[TensorId] = set()  # the transposed tensors that a node computes

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if (order := _transpose_order(self._graph, node)) is not None:
                self._transpose(node.output, node.inputs[0], order, node.sources)
            elif (sunk := self._past(node)) is not None:
                inner, order = sunk
                self._nodes.append(inner)
                self._transpose(node.output, inner.output, order, ())
            else:
                self._nodes.append(replace(node, inputs=tuple(map(self._plain, node.inputs))))
            if node.output in self._graph.wanted:
                self._plain(node.output)
        return self._graph.with_nodes(self._nodes, self._tensors)

    def _transpose(self, output: TensorId, tensor: TensorId, order: Order, sources: tuple[int, ...]) -> None:
        """Remember that ``output`` is a transpose of ``tensor``; two transposes in a row become one."""
        before = self._transposed.get(tensor)
        if before is not None:
            tensor, order = before.source, tuple(before.order[axis] for axis in order)
            sources = tuple(dict.fromkeys((*before.sources, *sources)))
        self._transposed[output] = Transposed(tensor, order, sources)

    def _plain(self, tensor: TensorId) -> TensorId:
        """Return the tensor for a node that needs its axes in order; adds the node that transposes, if there is none
        yet."""
        known = self._transposed.get(tensor)
        if known is None or tensor in self._written:
            return tensor
        if known.order == tuple(range(len(known.order))) and tensor not in self._graph.wanted:
            return known.source
        if _moves_unit_axes(self._tensors[known.source].shape, known.order):
            self._nodes.append(Node("reshape", (known.source,), tensor, sources=known.sources))
        else:
            axes = tuple(map(AxisMap, _inverse(known.order)))
            self._nodes.append(Node("rearrange", (known.source,), tensor, Rearrange(axes), sources=known.sources))
        self._written.add(tensor)
        return tensor

    def _past(self, node: Node) -> tuple[Node, Order] | None:
        """``node`` on its untransposed inputs, and the order that turns its new result into the old one; or None."""
        orders = {self._transposed[t].order for t in node.inputs if t in self._transposed}
        if len(orders) != 1 or self._pads_an_image(node):
            return None
        (order,) = orders
        if node.kind == "reshape":
            return self._past_reshape(node, order)
        output, reordered = self._tensors[node.output], _reordered(node, order)
        if reordered is None or len(output.shape) != len(order):
            return None
        is_undone = self._is_undone(node, order)
        inputs = [self._source(t, order) or (self._moved_back(t, order) if is_undone else None) for t in node.inputs]
        known = tuple(t for t in inputs if t is not None)
        if len(known) < len(inputs):
            return None
        shape = tuple(output.shape[axis] for axis in _inverse(order))
        inner = self._tensors.like(output, shape).id
        return replace(reordered, inputs=known, output=inner), order

    def _past_reshape(self, node: Node, order: Order) -> tuple[Node, Order] | None:
        """Return the same as :meth:`_past` of a reshape that splits axes, or joins axes that are neighbours in the
        source.

        Axes of size 1 then come first, so that channels stay the last axis, or last, where the source has one channel.
        """
        old, output = self._tensors[node.inputs[0]].shape, self._tensors[node.output]
        source = self._transposed[node.inputs[0]].source
        sizes = self._tensors[source].shape
        groups = _regrouped(old, output.shape)
        if node.epilogue or groups is None:
            return None
        larger = [axis for axis, size in enumerate(sizes) if size > 1]
        known = sorted(([order[axis] for axis in before], after) for before, after in groups)
        if [axis for before, _ in known for axis in before] != larger:
            return None
        split = [axis for _, after in known for axis in after]  # of the result, in the order of the source
        units = len(output.shape) - len(split)
        first = units if sizes and sizes[-1] > 1 else 0
        places = {axis: place for place, axis in enumerate(split, first)}
        added = iter(range(0 if first else len(split), units if first else len(output.shape)))
        new = tuple(places[axis] if size > 1 else next(added) for axis, size in enumerate(output.shape))
        shape = tuple(output.shape[axis] for axis in _inverse(new))
        inner = self._tensors.like(output, shape).id
        in_place = keeps_bytes(sizes, shape)
        return replace(node, inputs=(source,), output=inner, in_place=in_place), new

    def _is_undone(self, node: Node, order: Order) -> bool:
        """Whether nothing but the inverse transpose reads an elementwise function of several tensors, one transposed.

        Then another one may be transposed instead of it, and nothing else.
        """
        reader = self._graph.sole_consumer(node.output) if node.kind == "map" else None
        undone = reader is not None and _transpose_order(self._graph, reader) == _inverse(order)
        result = self._tensors[node.output]
        computed = [self._tensors[t] for t in node.inputs if not self._tensors[t].is_constant]
        others = [t for t in computed if t.id not in self._transposed]
        return undone and len(others) == 1 and all(t.size == result.size for t in computed)

    def _moved_back(self, tensor: TensorId, order: Order) -> TensorId:
        """Return a transpose of an untransposed tensor, which ``order`` would turn into the tensor."""
        value, units = self._tensors[tensor], len(order) - len(self._tensors[tensor].shape)
        shape = tuple(((1,) * units + value.shape)[axis] for axis in _inverse(order))
        moved = self._tensors.like(value, shape).id
        self._nodes.append(Node("rearrange", (tensor,), moved, Rearrange(tuple(map(AxisMap, order[units:])))))
        return moved

    def _pads_an_image(self, node: Node) -> bool:
        """Whether a node is the padding of windows, of which the kernel of the window can be all."""
        readers = self._graph.consumers.get(node.output, ())
        is_padding = isinstance(node.attributes, Rearrange) and node.attributes.fill is not None
        return is_padding and bool(readers) and all(n.kind in ("convolution", "depthwise", "pool") for n in readers)

    def _source(self, tensor: TensorId, order: Order) -> TensorId | None:
        """Return the tensor that ``order`` turns into ``tensor``; None if a node would have to compute it."""
        if tensor in self._transposed:
            return self._transposed[tensor].source
        value = self._tensors[tensor]
        if value.size == 1 and len(value.shape) <= len(order):
            return tensor
        if value.data is None:
            return None
        data = value.data.reshape((1,) * (len(order) - value.data.ndim) + value.shape).transpose(_inverse(order))
        data = np.ascontiguousarray(data)
        return self._tensors.add(replace(value, shape=data.shape, data=data, scale=None)).id


def _moves_unit_axes(shape: Shape, order: Order) -> bool:
    """Whether a transpose leaves all axes in their order but those of size 1."""
    axes = [axis for axis in order if shape[axis] > 1]
    return axes == sorted(axes)


def _regrouped(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Return the smallest groups of axes of which a reshape makes others, without those of size 1; None of an empty
    tensor."""
    if prod(old) == 0:
        return None
    groups: list[tuple[list[int], list[int]]] = []
    rest = [(axis, size) for axis, size in enumerate(new) if size > 1][::-1]
    product = made = 1
    for axis, size in enumerate(old):
        if size == 1:
            continue
        if product == made:
            groups.append(([], []))
        groups[-1][0].append(axis)
        product *= size
        while made < product:
            after, extent = rest.pop()
            groups[-1][1].append(after)
            made *= extent
    return groups


def _inverse(order: Order) -> Order:
    return tuple(np.argsort(order).tolist())


def _transpose_order(graph: Graph, node: Node) -> Order | None:
    """Return the order in which a node takes the axes of its input; None if it does more than transpose."""
    if not isinstance(node.attributes, Rearrange) or node.epilogue:
        return None
    axes = node.attributes.axes
    places = [m.axis for m in axes if m.axis is not None and m == AxisMap(m.axis)]
    source, shape = graph[node.inputs[0]].shape, graph[node.output].shape
    if sorted(places) != list(range(len(source))) or len(shape) != len(source):
        return None
    order = _inverse(tuple(places))
    return order if shape == tuple(source[axis] for axis in order) else None


def _reordered(node: Node, order: Order) -> Node | None:
    """``node`` for untransposed inputs; None if that takes more than new numbers of axes."""
    if node.kind == "map":
        return node
    if node.epilogue_inputs:
        return None
    match node.attributes:
        case Concatenate(axis):
            return replace(node, attributes=Concatenate(order[axis]))
        case Reduce(function, axes):
            return replace(node, attributes=Reduce(function, tuple(sorted(order[axis] for axis in axes))))
        case Rearrange(axes, fill) if [m.axis for m in axes] == list(range(len(order))):
            moved = tuple(replace(axes[axis], axis=place) for place, axis in enumerate(_inverse(order)))
            return replace(node, attributes=Rearrange(moved, fill))
    return None
