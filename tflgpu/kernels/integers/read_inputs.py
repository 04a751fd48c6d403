"""Convolutions and layers read 8-bit integers of a model input as the caller gives them, in row-major order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tflgpu.graph.ir import Node, TensorId, Value
from tflgpu.kernels.integers import INTEGERS
from tflgpu.kernels.integers.integer_products import multiplies_integers
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning


@INTEGERS.rewrite("replace")
def read_inputs(planning: Planning) -> Planning:
    """Drop a conversion of a model input, if a convolution of few channels or a layer is all that reads its
    result."""
    read: dict[TensorId, TensorId] = {}
    storage: dict[TensorId, Storage] = {}
    for node in planning.graph.nodes:
        if node.kind in ("convolution", "fully_connected") and (found := _input_of(planning, node)) is not None:
            read[node.inputs[0]] = found
            storage[found] = _stored(planning, node, found)
    nodes = (_reading(node, read) for node in planning.graph.nodes if node.output not in read)
    return planning.with_nodes(nodes, storage=storage)


def _input_of(planning: Planning, node: Node) -> TensorId | None:
    """Return the model input whose conversion a product reads, if its kernel can read the input itself."""
    graph, image = planning.graph, node.inputs[0]
    conversion = graph.producer.get(image)
    if conversion is None or conversion.kind != "map" or graph.sole_consumer(image) is None:
        return None
    given, grid = conversion.inputs[0], planning.storage[image].grid
    if given not in graph.inputs or graph.sole_consumer(given) is None:
        return None
    if node.kind == "convolution" and not planning.storage[given].linear:
        return None
    is_plain = [(op.function, op.operands) for op in conversion.epilogue] == [("dequantize", (Value(0),))]
    if not is_plain or grid is None or graph[given].dtype not in ("int8", "uint8"):
        return None
    storage = {**planning.storage, given: _stored(planning, node, given)}
    request = replace(planning, storage=storage).request(_reading(node, {image: given}))
    return given if multiplies_integers(request) else None


def _stored(planning: Planning, node: Node, given: TensorId) -> Storage:
    """How a model input lies in memory, with the grid of its conversion."""
    return replace(planning.storage[given], grid=planning.storage[node.inputs[0]].grid)


def _reading(node: Node, read: Mapping[TensorId, TensorId]) -> Node:
    """Return the node with other inputs."""
    return replace(node, inputs=tuple(read.get(t, t) for t in node.inputs))
