"""Choose for each layer of rows whether it computes a matrix or an image, so that the fewest elements are moved.

What an elementwise function, a normalization of rows or a layer computes does not depend on how the axes before the
last one are folded, but PHWC4 does: the rows of a matrix lie one after another, those of an image slice by slice. Nodes
such as windows and products of matrices ask for one of both. All others get the form by which the tensors that have to
be moved between two forms are the fewest and smallest: a minimum cut of the graph.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId
from tflgpu.graph.layout import LANES, Geometry, Shape, keeps_bytes
from tflgpu.graph.minimum_cut import ENDLESS, SINK, SOURCE, Network
from tflgpu.kernels.fusing import is_pointwise, kernel_inputs
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import POINTWISE

# What a movement costs besides its elements: as much as this many of them.
LAUNCH = 1 << 16

# Next to nothing: what it costs to store an image in rows, and to compute another form than the model does.
STORED, KEPT = 8, 1

# How many nodes there are at most between a movement and the product of matrices that it is for.
NEAR = 4


def choose_folds(graph: Graph) -> Graph:
    """Compute layers of rows as matrices or as images, whichever moves fewer elements.

    Returns ``graph`` itself if that is what it does.
    """
    folds = _Folds(graph)
    shapes = folds.chosen_shapes()
    return _Rewriting(graph, folds, shapes).run() if shapes else graph


class _Folds:
    """The tensors of a graph without the reshapes that only fold the axes before the last one."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.base: dict[TensorId, TensorId] = {}  # of each reshaped tensor: the one that a node computes
        for node in graph.nodes:
            if _is_fold(graph, node):
                self.base[node.output] = self.base_of(node.inputs[0])
        self.images = self._images()
        self.free = {node.output for node in graph.nodes if self._is_free(node)}

    def base_of(self, tensor: TensorId) -> TensorId:
        """The tensor whose elements, with other axes before the last one, are those of ``tensor``."""
        return self.base.get(tensor, tensor)

    def operands(self, node: Node) -> list[int]:
        """The positions of a node's inputs whose rows are those of its output."""
        first = kernel_inputs(node) if _is_layer(self.graph, node) else 1
        positions = [0, *range(first, len(node.inputs))]
        rows = _rows(self.graph[node.output].shape)
        return [i for i in positions if self._has_rows(node.inputs[i], rows)]

    def chosen_shapes(self) -> dict[TensorId, Shape]:
        """The new shapes of the tensors that are to be computed in another one."""
        shapes: dict[TensorId, Shape] = {}
        images = self._cut()
        is_new = False
        for node in self.graph.nodes:
            tensor, shape = node.output, self.graph[node.output].shape
            if tensor not in self.free:
                continue
            leading = self.images[_rows(shape)] if tensor in images else (_rows(shape),)
            is_new |= (tensor in images) == _is_matrix(shape)
            if (tensor in images) == _is_matrix(shape) or (tensor in images and self._follows(node, leading, shapes)):
                shapes[tensor] = (*leading, shape[-1])
        return shapes if is_new else {}

    def _follows(self, node: Node, leading: Shape, shapes: Mapping[TensorId, Shape]) -> bool:
        """Whether an operand of a node is computed with these axes, so that one kernel may compute both."""
        if _is_movement(node):
            return False
        bases = (self.base_of(node.inputs[i]) for i in self.operands(node))
        return any(shapes.get(t, self.graph[t].shape)[:-1] == leading for t in bases)

    def _has_rows(self, tensor: TensorId, rows: int) -> bool:
        shape = self.graph[tensor].shape
        return bool(shape) and _rows(shape) == rows

    def _images(self) -> dict[int, Shape]:
        """By the number of rows: the axes before the last one of the images that have the most elements."""
        found: dict[int, Counter[Shape]] = defaultdict(Counter)
        for node in self.graph.nodes:
            if not _is_fold(self.graph, node):
                for tensor in (*node.inputs, *node.outputs):
                    shape = self.graph[tensor].shape
                    g = Geometry(shape)
                    if g.plane > 1 and not self.graph[tensor].is_constant:
                        found[_rows(shape)][g.batch, g.height, g.width] += prod(shape)
        most = {rows: max(shapes, key=lambda s: (_classes(shapes)[_class(s)], s)) for rows, shapes in found.items()}
        return dict(most)

    def _is_free(self, node: Node) -> bool:
        """Whether a node computes the same in both forms."""
        graph, shape = self.graph, self.graph[node.output].shape
        is_layer, is_movement = _is_layer(graph, node), _is_movement(node)
        if not (is_layer or is_movement or node.kind in ("map", "layer_norm")) or node.side_outputs:
            return False
        if not shape or _rows(shape) not in self.images or _rows(shape) == 1 or node.output in graph.wanted:
            return False
        if is_movement:
            return not _is_fold(graph, node) and self._has_known_form(shape)
        operands = self.operands(node)
        first = kernel_inputs(node) if is_layer else 1
        others = [i for i in (0, *range(first, len(node.inputs))) if i not in operands]
        shapes = [shape, *(graph[node.inputs[i]].shape for i in operands)]
        return (
            0 in operands
            and all(_is_of_channels(graph[node.inputs[i]], shape) for i in others)
            and all(map(self._has_known_form, shapes))
        )

    def _has_known_form(self, shape: Shape) -> bool:
        """Whether a tensor is a matrix, or an image like most of as many rows."""
        image = self.images.get(_rows(shape))
        return _is_matrix(shape) or (image is not None and _class(shape[:-1]) == _class(image))

    def _cut(self) -> set[TensorId]:
        """The tensors that are computed as images."""
        network = Network()
        places = {tensor: network.node() for tensor in sorted(self.free)}
        for tensor, place in places.items():
            is_matrix = _is_matrix(self.graph[tensor].shape)
            network.edge(*((SOURCE, place) if is_matrix else (place, SINK)), KEPT)
        readers = self._readers()
        for tensor, forms in readers.items():
            producer = self._place_of_result(tensor, places)
            ends = [place for place in (self._place_of_reader(n, t, places) for n, t in forms) if place is not None]
            if producer is None or not ends or Geometry(self.graph[tensor].shape).slices == 1:
                continue
            shape = self.graph[tensor].shape
            cost = LAUNCH + _rows(shape) * Geometry(shape).slices * LANES
            as_image, as_matrix = network.node(), network.node()
            network.edge(producer, as_image, cost)
            # A kernel can store the rows of an image as those of a matrix, after the functions that are fused with it.
            is_stored_in_rows = len(forms) == 1 and shape[-1] % LANES == 0 and tensor in self.graph.producer
            is_before_fused = forms[0][0].kind == "map"
            network.edge(as_matrix, producer, STORED << is_before_fused if is_stored_in_rows else cost)
            for end in ends:
                network.edge(as_image, end, ENDLESS)
                network.edge(end, as_matrix, ENDLESS)
        images = network.sink_side()
        return {tensor for tensor, place in places.items() if place in images}

    def _readers(self) -> dict[TensorId, list[tuple[Node, TensorId]]]:
        """Of each tensor with rows: the nodes that read it, or a reshape of it, and which of both."""
        found: dict[TensorId, list[tuple[Node, TensorId]]] = defaultdict(list)
        for node in self.graph.nodes:
            if not _is_fold(self.graph, node):
                read = [t for t in dict.fromkeys(node.inputs) if self.graph[t].shape and not self.graph[t].is_constant]
                for tensor in read:
                    found[self.base_of(tensor)].append((node, tensor))
        return found

    def _place_of_result(self, tensor: TensorId, places: dict[TensorId, int]) -> int | None:
        node = self.graph.producer.get(tensor)
        if node is None:
            return SOURCE if Geometry(self.graph[tensor].shape).channels % LANES == 0 else None
        if _is_movement(node) and self._is_of_product(node.inputs[0], NEAR):
            return SOURCE
        return places.get(tensor, self._place_of_shape(self.graph[tensor].shape))

    def _place_of_reader(self, node: Node, tensor: TensorId, places: dict[TensorId, int]) -> int | None:
        if _is_movement(node):
            return SOURCE if self._is_for_product(node, NEAR) else None
        if node.output in places:
            position = node.inputs.index(tensor)
            return places[node.output] if position in self.operands(node) else None
        return self._place_of_shape(self.graph[tensor].shape)

    def _place_of_shape(self, shape: Shape) -> int | None:
        if _rows(shape) == 1 or not self._has_known_form(shape):
            return None
        return SOURCE if _is_matrix(shape) else SINK

    def _is_for_product(self, node: Node, distance: int) -> bool:
        """Whether a node moves elements for a product of matrices, whose kernel may read them where they are."""
        readers = self.graph.consumers.get(node.output, ())
        return any(
            n.kind == "matmul" or (distance > 0 and _moves_or_maps(n) and self._is_for_product(n, distance - 1))
            for n in readers
        )

    def _is_of_product(self, tensor: TensorId, distance: int) -> bool:
        """Whether elements that a node moves are those of a product of matrices, whose kernel may move them."""
        node = self.graph.producer.get(tensor)
        if node is None or node.kind == "matmul":
            return node is not None
        return distance > 0 and _moves_or_maps(node) and self._is_of_product(node.inputs[0], distance - 1)


class _Rewriting:
    """A graph with some tensors in other shapes."""

    def __init__(self, graph: Graph, folds: _Folds, shapes: dict[TensorId, Shape]) -> None:
        self._graph, self._folds, self._shapes = graph, folds, shapes
        self._tensors = dict(graph.tensors)
        self._fresh = graph.fresh_ids()
        self._nodes: list[Node] = []
        self._versions: dict[TensorId, list[TensorId]] = {}  # of a tensor that a node computes: all of its shapes
        self._written: set[TensorId] = set()
        self._sources: dict[TensorId, tuple[int, ...]] = {}

    def run(self) -> Graph:
        for node in self._graph.nodes:
            if _is_fold(self._graph, node):
                self._sources[node.output] = node.sources
                if node.output in self._graph.wanted:
                    self._as(node.output, self._graph[node.output].shape)
            elif node.output in self._shapes:
                self._compute(node, self._shapes[node.output])
            else:
                any_form = _is_movement(node)
                inputs = tuple(
                    self._as_it_is(t) if any_form else self._as(t, self._graph[t].shape) for t in node.inputs
                )
                self._nodes.append(replace(node, inputs=inputs))
        return self._graph.with_nodes(self._nodes, self._tensors.values())

    def _compute(self, node: Node, shape: Shape) -> None:
        """Add ``node`` with a result of ``shape``."""
        result = self._add_tensor(self._graph[node.output], shape)
        self._versions[node.output] = [result]
        if _is_movement(node):
            self._nodes.append(replace(node, inputs=(self._as_it_is(node.inputs[0]),), output=result))
            return
        operands = self._folds.operands(node)
        is_layer = _is_layer(self._graph, node)
        inputs = [
            self._as(t, (*shape[:-1], self._graph[t].shape[-1]))
            if i in operands
            else self._constant(t, self._graph[t].shape[-1:])
            if not is_layer or i > 1
            else t
            for i, t in enumerate(node.inputs)
        ]
        if is_layer:
            is_image = not _is_matrix(shape)
            weights = self._graph[node.inputs[1]].shape
            taps = (1, 1) if is_image else ()
            inputs[1] = self._constant(node.inputs[1], (weights[0], *taps, weights[-1]))
            kind = "convolution" if is_image else "fully_connected"
            node = replace(node, kind=kind, attributes=Convolution(POINTWISE) if is_image else None)
        self._nodes.append(replace(node, inputs=tuple(inputs), output=result))

    def _as(self, tensor: TensorId, shape: Shape) -> TensorId:
        """The tensor, which a node has computed in some shape, as one of ``shape``."""
        value = self._graph[tensor]
        if value.is_constant:
            return self._constant(tensor, shape)
        base = self._folds.base_of(tensor)
        versions = self._versions.setdefault(base, [base])
        for version in versions:
            is_free = tensor not in self._graph.wanted or version == tensor
            if self._tensors[version].shape == shape and is_free:
                return version
        source = next((v for v in versions if keeps_bytes(self._tensors[v].shape, shape)), versions[0])
        in_place = keeps_bytes(self._tensors[source].shape, shape) or self._is_in_hosts_order(source, tensor, shape)
        is_own = shape == value.shape and tensor not in self._written and tensor not in versions
        result = tensor if is_own else self._add_tensor(value, shape)
        self._written.add(result)
        sources = self._sources.get(tensor, ())
        self._nodes.append(Node("reshape", (source,), result, sources=sources, in_place=in_place))
        versions.append(result)
        return result

    def _as_it_is(self, tensor: TensorId) -> TensorId:
        """The tensor in the shape in which a node computes it."""
        base = self._folds.base_of(tensor)
        return self._versions[base][0] if base in self._versions else base

    def _is_in_hosts_order(self, source: TensorId, tensor: TensorId, shape: Shape) -> bool:
        """Whether a reshape leaves the bytes of a graph input in place, which is in the host's order."""
        return source in self._graph.inputs and Geometry(shape).is_linear and tensor not in self._graph.wanted

    def _constant(self, tensor: TensorId, shape: Shape) -> TensorId:
        value = self._tensors[tensor]
        if value.data is None or value.shape == shape or value.size != prod(shape):
            return tensor
        return self._add_tensor(replace(value, data=value.data.reshape(shape), scale=None), shape)

    def _add_tensor(self, like: Tensor, shape: Shape) -> TensorId:
        tensor = replace(like, id=next(self._fresh), name="", shape=shape)
        self._tensors[tensor.id] = tensor
        return tensor.id


def _rows(shape: Shape) -> int:
    return prod(shape[:-1])


def _is_matrix(shape: Shape) -> bool:
    return Geometry(shape).plane == 1


def _class(leading: Shape) -> tuple[int, int]:
    """Images and their pixels: what the order of elements in PHWC4 depends on."""
    g = Geometry((*leading, 1))
    return g.batch, g.plane


def _classes(shapes: Counter[Shape]) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for shape, elements in shapes.items():
        found[_class(shape)] += elements
    return found


def _is_fold(graph: Graph, node: Node) -> bool:
    """Whether a node only changes how the axes before the last one are folded."""
    if node.kind != "reshape" or node.epilogue or graph[node.inputs[0]].is_constant:
        return False
    old, new = (graph[t].shape for t in (node.inputs[0], node.output))
    return bool(old) and bool(new) and old[-1] == new[-1]


def _is_movement(node: Node) -> bool:
    """Whether a node moves elements by their places in row-major order, from any form to any form."""
    return node.kind in ("reshape", "strided") and not node.epilogue and not node.in_place


def _moves_or_maps(node: Node) -> bool:
    return node.kind in ("reshape", "strided", "rearrange", "map")


def _is_layer(graph: Graph, node: Node) -> bool:
    """Whether a node is a fully connected layer of each row or pixel."""
    is_product = node.kind == "fully_connected" or is_pointwise(node)
    return is_product and graph[node.inputs[1]].is_constant and graph[node.inputs[1]].scale is None


def _is_of_channels(tensor: Tensor, shape: Shape) -> bool:
    """Whether a tensor is a constant with one number, or with one for each channel of ``shape``."""
    return tensor.is_constant and (tensor.size == 1 or tensor.size == tensor.shape[-1] == shape[-1])
