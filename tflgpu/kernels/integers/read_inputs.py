"""Convolutions and layers read 8-bit integers of a model input as the caller gives them, in row-major order."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.ir import Node, TensorId, Value
from tflgpu.graph.rewrite_rules import Built, Match, Rule, op
from tflgpu.kernels.integers import INTEGERS
from tflgpu.kernels.integers.integer_products import multiplies_integers
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning


@INTEGERS.rewrite("replace")
def read_inputs(planning: Planning) -> Planning:
    """Drop a conversion of a model input, if a convolution of few channels or a layer is all that reads its
    result."""
    storage: dict[TensorId, Storage] = {}

    def read(match: Match) -> Built:
        node = match.node
        given = _input_of(planning, node)
        if given is None:
            return None
        storage[given] = _stored(planning, node, given)
        return [_reading(node, given)]

    pattern = op("convolution|fully_connected", op("map", alone=True))
    return planning.rewritten(Rule("read_inputs", pattern, read), storage=storage)


def _input_of(planning: Planning, node: Node) -> TensorId | None:
    """Return the model input whose conversion a product reads, if its kernel can read the input itself."""
    graph, image = planning.graph, node.inputs[0]
    conversion = graph.producer[image]
    given, grid = conversion.inputs[0], planning.storage[image].grid
    if given not in graph.inputs or graph.sole_consumer(given) is None:
        return None
    if node.kind == "convolution" and not planning.storage[given].linear:
        return None
    is_plain = [(op.function, op.operands) for op in conversion.epilogue] == [("dequantize", (Value(0),))]
    if not is_plain or grid is None or graph[given].dtype not in ("int8", "uint8"):
        return None
    storage = {**planning.storage, given: _stored(planning, node, given)}
    request = replace(planning, storage=storage).request(_reading(node, given))
    return given if multiplies_integers(request) else None


def _stored(planning: Planning, node: Node, given: TensorId) -> Storage:
    """How a model input lies in memory, with the grid of its conversion."""
    return replace(planning.storage[given], grid=planning.storage[node.inputs[0]].grid)


def _reading(node: Node, given: TensorId) -> Node:
    """Return a product of a model input."""
    return replace(node, inputs=(given, *node.inputs[1:]))
