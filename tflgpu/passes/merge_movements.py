"""Make one node, or none, of reshapes, transposes and slices in a row, and compute between them in one shape.

Nodes that can compute the rows of a matrix or the pixels of an image do what moves the fewest tensors. PHWC4 has the
elements of a row side by side in a matrix, and far apart in an image. Each tensor between two nodes that differ moves
once. That is a minimum cut: a node with another choice than its neighbour is on the other side of it.

What an elementwise function computes does not depend on how the axes before the last one are folded, nor does a
normalization of rows or a fully connected layer. So these compute in the shape that their operand was computed in, and
the reshapes in between meet and vanish. In PHWC4 most of them would move every byte. Rows of a matrix lie one after
the other: where such a node can choose, it computes a matrix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from types import MappingProxyType

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId, remove_dead
from tflgpu.graph.layout import LANES, Shape, geometry_of, keeps_bytes, without_units
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.fusing import is_pointwise, kernel_inputs
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import POINTWISE
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, Strided, rearranged, whole

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


@dataclass(frozen=True)
class View:
    """A tensor whose elements are elements of ``source``. sources: the model's operators that move them."""

    source: TensorId
    strided: Strided
    sources: tuple[int, ...] = ()


def merge_movements(graph: Graph) -> Graph:
    """Move elements once where several nodes in a row did, and in a shape that takes fewer movements.

    Returns ``graph`` itself if the result does not move less often.
    """
    return min(graph, _Merging(graph, _Merging(graph).choose_rows()).run(), key=_movements)


def _movements(graph: Graph) -> tuple[int, int]:
    """How many nodes move elements and compute nothing, and how many nodes there are besides."""
    graph = remove_dead(graph)
    moving = graph.of_kind("rearrange", "reshape", "strided")
    return sum(not node.in_place for node in moving), len(graph.nodes)


class _Merging:
    """are_rows: by outputs of nodes, whether these compute rows of a matrix, even if that takes a movement."""

    def __init__(self, graph: Graph, are_rows: Mapping[TensorId, bool] = MappingProxyType({})) -> None:
        self._graph = graph
        self._are_rows = are_rows
        self._tensors = NewTensors(graph)
        self._nodes: list[Node] = []
        self._views: dict[TensorId, View] = {}
        self._moved: dict[TensorId, Node] = {}  # a single node that makes a view
        self._written: set[TensorId] = set()  # the views that a node computes
        self._made: dict[tuple[TensorId, Strided, Shape], TensorId] = {}  # what a node makes of another tensor

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if (view := self._view(node)) is not None:
                self._views[node.output] = view
                if node.inputs[0] not in self._views and isinstance(node.attributes, Rearrange):
                    self._moved[node.output] = node
            elif not (self._compute_reshaped(node) or self._pad_joined(node) or self._compute_folded(node)):
                self._nodes.append(replace(node, inputs=tuple(map(self._plain, node.inputs))))
            if node.output in self._graph.wanted:
                self._plain(node.output)
        return self._graph.with_nodes(self._nodes, self._tensors)

    def choose_rows(self) -> dict[TensorId, bool]:
        """Whether nodes that could do either should compute rows of a matrix, by their outputs."""
        free, layers, readings = set[TensorId](), list[TensorId](), list[Reading]()
        for node in self._graph.nodes:
            if (view := self._view(node)) is not None:
                self._views[node.output] = view
                if not self._is_folded(view, node.output):
                    free.add(node.output)
                continue
            if node.kind == "matmul":  # as a part of attention it reads and writes either
                free.add(node.output)
                continue
            rows = self._row_operands(node)
            if rows:
                free.add(node.output)
                if node.kind == "fully_connected":
                    layers.append(node.output)
            for i, tensor in enumerate(node.inputs):
                view = self._views.get(tensor)
                source = view.source if view is not None and self._is_folded(view, tensor) else tensor
                if not self._tensors[tensor].is_constant:
                    output = node.output if i in rows else None
                    readings.append(Reading(source, self._tensors[tensor].shape, output))
        are_rows = nodes_of_rows(self._graph, free, layers, readings)
        return {tensor: tensor in are_rows for tensor in free}

    def _view(self, node: Node) -> View | None:
        """Return what a node that only moves elements makes of a tensor that is no view; None if it does more."""
        movement = node.kind in ("rearrange", "reshape") and not node.epilogue
        if not movement or not self._tensors[node.output].size:
            return None
        tensor = node.inputs[0]
        before = self._views.get(tensor) or View(tensor, whole(self._tensors[tensor].size))
        shape, result = self._tensors[tensor].shape, self._tensors[node.output].shape
        if isinstance(node.attributes, Rearrange):
            strided = rearranged(before.strided, shape, node.attributes, result)
        else:
            strided = before.strided
        return View(before.source, strided, (*before.sources, *node.sources)) if strided else None

    def _is_reshape(self, view: View) -> bool:
        """Whether a view has all elements of its source in their order."""
        return view.strided.is_reshape(self._tensors[view.source].size)

    def _plain(self, tensor: TensorId) -> TensorId:
        """Return the tensor for a node that needs it as it is; adds the node that moves elements, if there is none
        yet."""
        view = self._views.get(tensor)
        if view is None or tensor in self._written:
            return tensor
        as_it_was = self._is_reshape(view) and self._tensors[view.source].shape == self._tensors[tensor].shape
        if as_it_was and tensor not in self._graph.wanted:
            return view.source
        if tensor not in self._graph.wanted:
            made = self._made.setdefault((view.source, view.strided, self._tensors[tensor].shape), tensor)
            if made != tensor:
                return made
        self._written.add(tensor)
        self._nodes.append(self._moved.get(tensor) or self._movement(view, tensor))
        return tensor

    def _movement(self, view: View, tensor: TensorId) -> Node:
        """Return the node that makes ``tensor`` of a view."""
        sources = tuple(dict.fromkeys(view.sources))
        if not self._is_reshape(view):
            return Node("strided", (view.source,), tensor, view.strided, sources=sources)
        old, new = self._tensors[view.source].shape, self._tensors[tensor].shape
        in_place = keeps_bytes(old, new) or self._stays_in_hosts_order(view.source, tensor)
        return Node("reshape", (view.source,), tensor, sources=sources, in_place=in_place)

    def _stays_in_hosts_order(self, source: TensorId, tensor: TensorId) -> bool:
        """Whether a reshape leaves the bytes in place because the host's order is that of the other shape."""
        if source in self._graph.inputs:
            return geometry_of(self._tensors[tensor].shape).is_linear and tensor not in self._graph.wanted
        # An output that is one twice is copied, and a state's value is not stored where an output is.
        is_last = self._graph.outputs.count(tensor) == 1 and tensor not in self._graph.consumers
        is_free = source not in self._graph.given | self._graph.wanted
        return is_last and is_free and geometry_of(self._tensors[source].shape).is_linear

    def _row_operands(self, node: Node) -> set[int]:
        """Positions of the inputs whose rows become rows of the result; none if a node has to compute in its shape."""
        shape = self._tensors[node.output].shape
        is_layer = _is_layer(self._graph, node)
        if not (is_layer or node.kind in ("map", "layer_norm", "softmax")) or not shape or not prod(shape):
            return set()
        weights = set(range(1, kernel_inputs(node))) if is_layer else set()
        operands = [self._tensors[t] for t in node.inputs]
        full = {i for i, own in enumerate(operands) if _has_rows(own, shape)} - weights
        others = [own for i, own in enumerate(operands) if i not in full | weights]
        return full if all(map(_is_of_channels, others)) else set()

    def _compute_folded(self, node: Node) -> bool:
        """Add ``node`` in another shape, if it can choose; its result is a view from then on."""
        shape = self._tensors[node.output].shape
        full = self._row_operands(node)
        leading = self._leading_axes([node.inputs[i] for i in sorted(full)], node) if full else None
        if leading in (None, shape[:-1]):
            return False
        if _is_layer(self._graph, node):
            if len(leading) == 1:
                node = replace(node, kind="fully_connected", attributes=None)
            elif len(leading) == 3:
                node = replace(node, kind="convolution", attributes=Convolution(POINTWISE))
            else:
                return False
        inputs = [
            self._in_shape(t, (*leading, self._tensors[t].shape[-1])) if i in full else self._flat(t, node)
            for i, t in enumerate(node.inputs)
        ]
        result = self._tensors.like(self._tensors[node.output], (*leading, shape[-1])).id
        self._nodes.append(replace(node, inputs=tuple(inputs), output=result))
        self._views[node.output] = View(result, whole(prod(shape)))
        return True

    def _compute_reshaped(self, node: Node) -> bool:
        """Add an elementwise ``node`` in the shape in which an operand was computed, if its channels are others there
        and the other operands can be had in that shape; its result is a view from then on."""
        shape = self._tensors[node.output].shape
        operands = [t for t in node.inputs if not (self._tensors[t].is_constant and self._tensors[t].size == 1)]
        if node.kind != "map" or not shape or any(self._tensors[t].shape != shape for t in operands):
            return False
        views = [self._views.get(t) for t in operands]
        if any(v is None or t in self._written for v, t in zip(views, operands, strict=True)):
            return False
        sources = {self._tensors[v.source].shape for v in views if v is not None and self._is_reshape(v)}
        if len(sources) != 1 or (source := sources.pop())[-1:] == shape[-1:]:
            return False
        if not source or any(len(self._tensors[t].shape) > len(source) for t in node.inputs if t not in operands):
            return False  # a number of more axes would not broadcast
        inputs = [self._in_shape(t, source) if t in operands else t for t in node.inputs]
        result = self._tensors.like(self._tensors[node.output], source).id
        self._nodes.append(replace(node, inputs=tuple(inputs), output=result))
        self._views[node.output] = View(result, whole(prod(source)))
        return True

    def _pad_joined(self, node: Node) -> bool:
        """Add the padding of a reshape with the axes after the padded ones joined, if the operand has these as channels
        and takes no movement; its result is a view from then on."""
        tensor, attributes = node.inputs[0] if node.inputs else -1, node.attributes
        view = self._views.get(tensor)
        if not isinstance(attributes, Rearrange) or node.epilogue or view is None or not self._is_reshape(view):
            return False
        shape, new = self._tensors[tensor].shape, self._tensors[node.output].shape
        kept = [m == AxisMap(i) and shape[i] == new[i] for i, m in enumerate(attributes.axes)] + [False]
        first = max((i + 1 for i, same in enumerate(kept[:-1]) if not same), default=0)
        source, joined = self._tensors[view.source].shape, (*shape[:first], prod(shape[first:]))
        if len(shape) - first < 2 or tensor in self._written or not source or not keeps_bytes(source, joined):
            return False
        operand = self._in_shape(tensor, joined)
        result = self._tensors.like(self._tensors[node.output], (*new[:first], prod(new[first:]))).id
        padding = replace(attributes, axes=(*attributes.axes[:first], AxisMap(first)))
        self._nodes.append(replace(node, inputs=(operand,), output=result, attributes=padding))
        self._views[node.output] = View(result, whole(prod(new)))
        return True

    def _leading_axes(self, operands: Sequence[TensorId], node: Node) -> Shape:
        """Return the axes before the last one of what a node computes that could be rows of a matrix or pixels of an
        image."""
        is_matrix, rows = self._are_rows[node.output], prod(self._tensors[node.output].shape[:-1])
        if node.kind == "map" and (is_matrix or rows == 1) and self._lie_as_rows(operands, rows):
            return self._axes_of_last(operands, node)
        if not is_matrix and self._are_moved(operands) and (read := self._read_as(node)) is not None:
            return read[:-1]
        return (prod(self._tensors[node.output].shape[:-1]),) if is_matrix else self._axes_of_image(operands, node)

    def _lie_as_rows(self, operands: Sequence[TensorId], rows: int) -> bool:
        """Whether operands lie in memory as the rows of a matrix, whatever their axes are."""
        return all(_planes(self._tensors[self._source(t)].shape) == (rows, 1) for t in operands)

    def _axes_of_last(self, operands: Sequence[TensorId], node: Node) -> Shape:
        """Return the axes before the last one of the operand that is computed last: its kernel can have ``node`` as its
        epilogue."""
        sources = {self._source(t) for t in operands}
        last = next((n.output for n in reversed(self._nodes) if n.output in sources), node.output)
        return self._tensors[last].shape[:-1]

    def _source(self, tensor: TensorId) -> TensorId:
        """Return what an operand is a view of, if it differs only in how the axes before the last one are folded."""
        view = self._views.get(tensor)
        return view.source if view is not None and self._is_folded(view, tensor) else tensor

    def _axes_of_image(self, operands: Sequence[TensorId], node: Node) -> Shape:
        """Return the axes before the last one of an image with the pixels that ``node`` computes: those of an
        operand, if one
        is an image. Of several it is the one that lies in memory as most of them and the node's own result do, and of
        these the one that is computed last: its kernel can have the node as its epilogue."""
        views = [(t, self._views.get(t)) for t in operands if not self._tensors[t].is_constant]
        sources = [v.source if v is not None and self._is_folded(v, t) else t for t, v in views]
        images = {t: _planes(self._tensors[t].shape) for t in sources if not is_row_major(self._tensors[t].shape)}
        votes = Counter((*images.values(), _planes(self._tensors[node.output].shape)))
        common = {t for t, planes in images.items() if votes[planes] == max(votes[own] for own in images.values())}
        last = next((n.output for n in reversed(self._nodes) if n.output in common), None) if len(common) > 1 else None
        chosen = last if last is not None else next(iter(common), node.output)
        shape = self._tensors[chosen].shape
        if is_row_major(shape):
            shape = next((s for s in self._folded_shapes(node) if not is_row_major(s)), shape)
        if prod(shape[:-1]) == 1 and any(len(self._tensors[t].shape) == 2 for t in sources):
            return (1,)
        leading = (1, prod(shape[:-1])) if is_row_major(shape) else shape[:-1]
        if not _is_layer(self._graph, node):
            return leading
        return (prod(leading[:-2]), *leading[-2:]) if len(leading) > 2 else (leading[0], 1, leading[1])

    def _is_folded(self, view: View, tensor: TensorId) -> bool:
        """Whether a view differs from its source only in how the axes before the last one are folded."""
        return self._is_reshape(view) and self._tensors[view.source].shape[-1:] == self._tensors[tensor].shape[-1:]

    def _are_moved(self, operands: Sequence[TensorId]) -> bool:
        """Whether operands take movements in any shape, of which none has been made."""
        views = [self._views.get(t) for t in operands if not self._tensors[t].is_constant]
        return not any(v is None or self._is_reshape(v) for v in views) and self._written.isdisjoint(operands)

    def _read_as(self, node: Node) -> Shape | None:
        """Return the only shape that anything reads the rows of a node's result in, if it is another one."""
        folded = set(self._folded_shapes(node))
        same = len(folded) == 1 and all(map(_folds, self._graph.consumers[node.output]))
        is_free = same and node.output not in self._graph.wanted and not _is_layer(self._graph, node)
        return folded.pop() if is_free else None

    def _folded_shapes(self, node: Node) -> list[Shape]:
        """Return the shapes that reshapes make of the rows of a node's result."""
        channels = self._tensors[node.output].shape[-1:]
        readers = [self._tensors[n.output].shape for n in self._graph.consumers.get(node.output, ()) if _folds(n)]
        return [shape for shape in readers if shape[-1:] == channels]

    def _in_shape(self, tensor: TensorId, shape: Shape) -> TensorId:
        """Return an operand with other axes before the last one."""
        if self._tensors[tensor].is_constant:
            return self._constant(tensor, shape)
        view = self._views.get(tensor) or View(tensor, whole(prod(shape)))
        if self._is_reshape(view) and self._tensors[view.source].shape == shape:
            return view.source
        made = (view.source, view.strided, shape)
        if made not in self._made:
            self._made[made] = self._tensors.like(self._tensors[tensor], shape).id
            self._nodes.append(self._movement(view, self._made[made]))
        return self._made[made]

    def _flat(self, tensor: TensorId, node: Node) -> TensorId:
        """Return a constant for the same node on a matrix: the weights of a layer, a number for each channel, or
        one."""
        shape = self._tensors[tensor].shape
        if tensor != node.inputs[1] or not _is_layer(self._graph, node):
            return self._constant(tensor, shape[-1:])
        pixel = (1, 1) if node.kind == "convolution" else ()
        return self._constant(tensor, (shape[0], *pixel, shape[-1]))

    def _constant(self, tensor: TensorId, shape: Shape) -> TensorId:
        value = self._tensors[tensor]
        if value.shape == shape or value.data is None:
            return tensor
        return self._tensors.add(replace(value, shape=shape, data=value.data.reshape(shape), scale=None)).id


def _planes(shape: Shape) -> tuple[int, int]:
    """How many images there are, and pixels of each. With the same channels it says where each element lies."""
    return geometry_of(shape).batch, geometry_of(shape).plane


def _folds(node: Node) -> bool:
    return node.kind == "reshape" and not node.epilogue


def _has_rows(operand: Tensor, shape: Shape) -> bool:
    """Whether an operand has a row, or a number, for each row of a result of ``shape``."""
    if not operand.shape:
        return False
    if operand.is_constant and operand.size == prod(shape):
        return operand.shape[-1] == shape[-1]
    return without_units(operand.shape[:-1]) == without_units(shape[:-1])


def _is_of_channels(tensor: Tensor) -> bool:
    """Whether a tensor is a constant with one number, or with one for each channel."""
    return tensor.is_constant and (tensor.size == 1 or tensor.size == tensor.shape[-1])


def _is_layer(graph: Graph, node: Node) -> bool:
    """Whether a node is a fully connected layer, of the rows of a matrix or of each pixel of an image."""
    is_layer = node.kind == "fully_connected" or is_pointwise(node)
    return is_layer and graph[node.inputs[1]].is_constant and graph[node.inputs[1]].scale is None
