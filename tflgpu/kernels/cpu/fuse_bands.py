"""Make one node of a convolution and the depthwise one behind it, on CPUs.

What is between them, often the largest tensor of a model, then stays in the cache of a core, in the order that the
depthwise convolution likes best.
"""

from __future__ import annotations

from collections.abc import Mapping

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId
from tflgpu.kernels.convolutions import unrolls
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.cpu.band_kernels import Band, ConvolutionDepthwise, band_candidates, band_work
from tflgpu.kernels.cpu.costs import pair_cycles
from tflgpu.kernels.fusing import epilogue_without_inputs, joined_node, weights_and_bias
from tflgpu.kernels.kernel import Storage
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.target import Target

Storages = Mapping[TensorId, Storage]


@CPU.fusion
def fuse_bands(graph: Graph, storage: Storages, target: Target) -> Graph:
    """One node for each depthwise convolution and the convolution before it that run faster so."""
    if target.arithmetic == "half" or (target.storage == "half" and _is_quantized(graph)):
        return graph
    fresh = graph.fresh_ids()
    zeros: list[Tensor] = []
    dropped: set[TensorId] = set()
    nodes: list[Node] = []
    for node in graph.nodes:
        first = _convolution_before(graph, storage, node)
        attributes = _attributes(graph, first, node) if first else None
        if first and attributes and _is_faster(attributes, first, node, storage, target):
            constants = (t for n in (first, node) for t in weights_and_bias(graph, n, fresh, zeros))
            node = joined_node("convolution_depthwise", attributes, first, node, (first.inputs[0], *constants))
            dropped.add(first.output)
        nodes.append(node)
    return graph.with_nodes([node for node in nodes if node.output not in dropped], zeros)


def _is_quantized(graph: Graph) -> bool:
    """Whether half precision stores whole numbers, which convolutions by themselves sum without error."""
    return any(op.function == "simulate" for node in graph.nodes for op in node.epilogue)


def _convolution_before(graph: Graph, storage: Storages, node: Node) -> Node | None:
    """The convolution that computes the image of a depthwise one, if nothing else reads that."""
    first = graph.producer.get(node.inputs[0]) if unrolls(node.attributes) else None
    if first is None or not isinstance(first.attributes, Convolution) or first.attributes.groups != 1:
        return None
    constant = graph[first.inputs[1]].is_constant and graph[node.inputs[1]].is_constant
    alone = first.inputs[0] in storage and graph.sole_consumer(first.output) is not None
    return first if constant and alone else None


def _attributes(graph: Graph, first: Node, second: Node) -> ConvolutionDepthwise | None:
    """Those of the one node; None if there cannot be one."""
    epilogue = epilogue_without_inputs(graph, first)
    assert isinstance(first.attributes, Convolution) and isinstance(second.attributes, Depthwise)
    if epilogue is None:
        return None
    return ConvolutionDepthwise(first.attributes.window, second.attributes.window, epilogue)


def _is_faster(attributes: ConvolutionDepthwise, first: Node, second: Node, storage: Storages, target: Target) -> bool:
    src, dst = storage[first.inputs[0]], storage[second.output].geometry
    together = band_candidates(attributes, src, dst, target)
    alone = pair_cycles(band_work(Band(1, dst.height), attributes, src, dst), storage[first.output], target)
    return bool(together) and together[0].cycles < alone
