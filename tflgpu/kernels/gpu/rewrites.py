"""Nodes that GPUs compute as one: attention, a squeeze-and-excitation, and movements that kernels do as they read.

The two layers of an excitation and the product after them are kernels of a few microseconds that wait for each other.
The one kernel computes the hidden layer in every work-group. It is faster as long as the layers have few weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tflgpu.graph.ir import Graph, Input, Node, Operand, TensorId, Value, joint_sources
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, op, rewrite
from tflgpu.kernels.access import keeps_vec4s
from tflgpu.kernels.attention import with_attention
from tflgpu.kernels.demand import Demand, cycles
from tflgpu.kernels.fusing import epilogue_without_inputs, is_pointwise, weights_and_bias
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.attention_kernel import rows_held
from tflgpu.kernels.gpu.excite_kernel import Excite, excite_work, fits_work_group
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.movement.shaping import Strided
from tflgpu.target import Target


@GPU.fusion()
def fuse_attention(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each attention for which the kernel has room."""
    return with_attention(graph, storage, lambda attention, _: bool(rows_held(attention, target)))


@dataclass(frozen=True)
class Excitation:
    """``image * gates(hidden(vector))``. product: a map; gate_input: which of its inputs the gates are."""

    hidden: Node
    gates: Node
    product: Node
    gate_input: int
    attributes: Excite


@GPU.fusion()
def fuse_excitations(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each squeeze-and-excitation that runs faster so."""

    def fuse(match: Match) -> Built:
        e = _excitation(match.graph, storage, match.node, target)
        if e is None or not _is_faster(match.graph, storage, e, target):
            return None
        constants = [t for layer in (e.hidden, e.gates) for t in weights_and_bias(match.graph, layer, match.graph.new)]
        return [_joined(e, (e.product.inputs[0], e.hidden.inputs[0], *constants))]

    return rewrite(graph, [Rule("fuse_excitations", op("map"), fuse)]).graph


def _excitation(graph: Draft, storage: Mapping[TensorId, Storage], product: Node, target: Target) -> Excitation | None:
    """Return what ``product`` belongs to, if it is the product of a squeeze-and-excitation."""
    gate_input = _gate_input(product)
    if gate_input is None:
        return None
    image, gate = product.inputs[0], product.inputs[gate_input]
    gates = graph.producer.get(gate)
    hidden = graph.producer.get(gates.inputs[0]) if gates else None
    if gates is None or hidden is None or not (_is_layer(graph, gates) and _is_layer(graph, hidden)):
        return None
    shape = graph[image].shape
    if len(shape) != 4 or shape != graph[product.output].shape or graph[gate].shape != (shape[0], 1, 1, shape[3]):
        return None
    hidden_epilogue = epilogue_without_inputs(graph, hidden, reads_padding=False)
    gate_epilogue = epilogue_without_inputs(graph, gates)
    inputs = image, gate, gates.inputs[0], hidden.inputs[0]
    if any(graph[t].is_constant for t in inputs) or storage[image].linear:
        return None
    if target.storage == "half" and any(graph[t].precise for t in inputs):
        return None
    if hidden_epilogue is None or gate_epilogue is None:
        return None
    return Excitation(hidden, gates, product, gate_input, Excite(hidden_epilogue, gate_epilogue))


def _gate_input(node: Node) -> int | None:
    """Which input of a map its first epilogue op multiplies its image with, if nothing else reads either."""
    if node.kind != "map" or not node.epilogue or node.epilogue[0].function != "mul":
        return None
    factors = [o.index for o in node.epilogue[0].operands if isinstance(o, Input)]
    if len(factors) != 1 or Value(0) not in node.epilogue[0].operands:
        return None
    later = [o for op in node.epilogue[1:] for o in op.operands]
    alone = not {Value(0), Input(0), Input(factors[0])} & set(later)
    return factors[0] if alone and node.inputs.count(node.inputs[factors[0]]) == 1 else None


def _is_layer(graph: Draft, node: Node) -> bool:
    """Whether a node is a fully connected layer of one pixel with constant weights and a single reader."""
    image = graph[node.inputs[0]].shape if node.inputs else ()
    return (
        is_pointwise(node)
        and len(image) == 4
        and image[1:3] == (1, 1)
        and graph[node.inputs[1]].is_constant
        and graph.sole_consumer(node.output) is not None
    )


def _is_faster(graph: Draft, storage: Mapping[TensorId, Storage], e: Excitation, target: Target) -> bool:
    image, vector = storage[e.product.inputs[0]], storage[e.hidden.inputs[0]]
    hidden, model = graph[e.hidden.output].shape[-1], target.cost_model
    if not fits_work_group(hidden, target):
        return False
    layer = model.tile_latency + model.batch_latency + model.next_kernel(target.executor)
    product = Demand(tile_count(image.vec4s, target.local_size), (), model.tile_latency).cycles(target)
    return cycles(excite_work(image, vector, hidden, target), target) < 2 * layer + product


def _joined(e: Excitation, inputs: tuple[TensorId, ...]) -> Node:
    """Return the node for ``inputs`` of its kernel. After them come those of the product's other epilogue ops."""
    others = [i for i in range(len(e.product.inputs)) if i not in (0, e.gate_input)]

    def place(operand: Operand) -> Operand:
        if isinstance(operand, Value):
            return Value(operand.index - 1)
        return Input(len(inputs) + others.index(operand.index))

    return Node(
        "excite",
        (*inputs, *(e.product.inputs[i] for i in others)),
        e.product.output,
        e.attributes,
        tuple(op.moved(place) for op in e.product.epilogue[1:]),
        joint_sources(e.hidden, e.gates, e.product),
    )


# Readers of a movement at most: each of them moves its elements again.
MAX_READERS = 2


@GPU.rewrite("read", fuses=True)
def read_moved(planning: Planning) -> Planning:
    """Read operands of map nodes where they lie before a movement of whole vec4s, if nothing else reads the result."""

    def read(match: Match) -> Built:
        producers = ((index, match.graph.producer.get(tensor)) for index, tensor in enumerate(match.node.inputs))
        moved = {i: p for i, p in producers if p and _is_read_only_by_maps(match.graph, planning.storage, p)}
        return [_reading(match.node, moved)] if moved else None

    return planning.rewritten(Rule("read_moved", op("map"), read))


def _is_read_only_by_maps(graph: Draft, storage: Mapping[TensorId, Storage], node: Node) -> bool:
    if node.kind != "strided" or node.in_place or node.epilogue or node.output in graph.wanted:
        return False
    assert isinstance(node.attributes, Strided)
    source, output = storage[node.inputs[0]], storage[node.output]
    readers = graph.consumers.get(node.output, ())
    shape = graph[node.output].shape
    return (
        0 < len(readers) <= MAX_READERS
        and all(reader.kind == "map" and graph[reader.output].shape == shape for reader in readers)
        and source.form == output.form
        and not source.linear
        and not output.linear
        and keeps_vec4s(node.attributes, source.geometry, output.geometry)
    )


def _reading(node: Node, moved: Mapping[int, Node]) -> Node:
    """Return a node that reads the sources of movements. moved: by the number of the input."""
    inputs = tuple(moved[i].inputs[0] if i in moved else tensor for i, tensor in enumerate(node.inputs))
    views = (*node.views, *((index, movement.attributes) for index, movement in moved.items()))
    return replace(node, inputs=inputs, views=views, sources=joint_sources(*moved.values(), node))
