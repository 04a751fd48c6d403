"""Make one node of a map of channel constants and the product that alone reads it."""

from __future__ import annotations

from collections.abc import Mapping

from tflgpu.graph.ir import Graph, Node, TensorId, Value
from tflgpu.graph.layout import LANES
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, op, rewrite
from tflgpu.kernels.fusing import is_pointwise, joined_node, kernel_inputs, weights_and_bias
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.convolution_kernels import convolution_candidates
from tflgpu.kernels.mma.excited_pointwise import (
    MAPPED_POINTWISE,
    MappedPointwise,
    mapped_candidates,
    mapping_cycles,
)
from tflgpu.kernels.mma.m16n8k16 import operands_of_image
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.epilogue_ops import FUNCTIONS
from tflgpu.ops.image.window import POINTWISE
from tflgpu.target import Target


@MMA.fusion(after=("gpu.fuse_excitations",))
def fuse_mapped_pointwise(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each map and the pointwise convolution or layer of it that run faster so."""

    def fuse(match: Match) -> Built:
        mapped, node = match["mapped"], match.node
        if not _is_faster(match.graph, storage, mapped, node, target):
            return None
        constants = mapped.inputs[1:]
        inputs = (mapped.inputs[0], *weights_and_bias(match.graph, node, match.graph.new), *constants)
        attributes = MappedPointwise(mapped.epilogue, len(constants))
        return [joined_node(MAPPED_POINTWISE, attributes, mapped, node, inputs)]

    pattern = op("convolution|fully_connected", op("map", name="mapped", alone=True))
    return rewrite(graph, [Rule("fuse_mapped_pointwise", pattern, fuse)]).graph


def _is_faster(graph: Draft, storage: Mapping[TensorId, Storage], mapped: Node, node: Node, target: Target) -> bool:
    """Whether one kernel computes ``node``, a product of what ``mapped`` gives, and both faster."""
    is_product = node.kind == "fully_connected" or is_pointwise(node)
    if not is_product:
        return False
    constants = (graph[t] for t in node.inputs[1 : kernel_inputs(node)])
    if mapped.inputs[0] not in storage or not all(t.is_constant for t in constants):
        return False
    image, between, result = (storage[t] for t in (mapped.inputs[0], mapped.output, node.output))
    if image != between or image.type not in ("half", "float") or image.linear or image.slices == 1:
        return False
    if not _are_of_channels(graph, mapped):
        return False
    candidates = mapped_candidates(image, result, target)
    operands = operands_of_image(image, target.storage)
    model = target.cost_model
    apart = convolution_candidates(operands, POINTWISE, image, result, target)[0].cycles
    vec4s = tile_count(2 * image.geometry.vec4s, target.compute_units)
    moving = model.tile_latency + vec4s / model.loaded_vec4s + model.next_kernel(target.executor)
    return candidates[0].cycles + mapping_cycles(candidates[0], len(mapped.epilogue), target) < apart + moving


def _are_of_channels(graph: Draft, mapped: Node) -> bool:
    """Whether a map computes floats of its first input and of constants with a number for each channel, or for all."""
    channels = graph[mapped.output].shape[-1]
    constants = [graph[t] for t in mapped.inputs[1:]]
    return (
        graph[mapped.inputs[0]].shape == graph[mapped.output].shape
        and all(FUNCTIONS[op.function].result == "first" for op in mapped.epilogue)
        and all(isinstance(o, Value) or o.index > 0 for op in mapped.epilogue for o in op.operands)
        and all(t.data is not None and t.data.dtype.kind == "f" for t in constants)
        and all(t.size == 1 or t.size == t.shape[-1] == channels for t in constants)
        and channels > LANES
    )
