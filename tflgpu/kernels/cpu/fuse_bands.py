"""Make one node of a convolution and a depthwise one next to it, on CPUs.

What is between them, often the largest tensor of a model, then stays in the cache of a core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tflgpu.graph.ir import EpilogueOp, Graph, Node, TensorId
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, op, rewrite
from tflgpu.kernels.convolutions import unrolls
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.cpu.band_kernels import Band, ConvolutionDepthwise, band_candidates, band_work
from tflgpu.kernels.cpu.costs import PairWork, depthwise_rate
from tflgpu.kernels.cpu.depthwise_bands import depthwise_pointwise_bands, depthwise_pointwise_work
from tflgpu.kernels.demand import cycles
from tflgpu.kernels.fused_convolutions import DepthwisePointwise
from tflgpu.kernels.fusing import epilogue_without_inputs, is_pointwise, joined_node, weights_and_bias
from tflgpu.kernels.kernel import Storage
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.target import Target

Storages = Mapping[TensorId, Storage]
Join = Callable[[Node, Node, tuple[EpilogueOp, ...], Draft, Storages, Target], object]


@CPU.fusion()
def fuse_bands(graph: Graph, storage: Storages, target: Target) -> Graph:
    """One node for each pair of neighbours that run faster so. First those that spare the most memory."""
    if target.arithmetic == "half" or (target.storage == "half" and _is_quantized(graph)):
        return graph
    graph = _joined(graph, storage, target, "convolution_depthwise", _convolution_depthwise)
    return _joined(graph, storage, target, "depthwise_pointwise", _depthwise_pointwise)


def _is_quantized(graph: Graph) -> bool:
    """Whether half precision stores whole numbers, which convolutions by themselves sum without error."""
    return any(op.function == "fake_quantize" for node in graph.nodes for op in node.epilogue)


def _joined(graph: Graph, storage: Storages, target: Target, kind: str, join: Join) -> Graph:
    """Return the graph with nodes of ``kind`` for pairs. join: their attributes, or None where two kernels are
    faster."""

    def fuse(match: Match) -> Built:
        first, node = match["first"], match.node
        constant = match.graph[first.inputs[1]].is_constant and match.graph[node.inputs[1]].is_constant
        epilogue = epilogue_without_inputs(match.graph, first) if constant and first.inputs[0] in storage else None
        attributes = None if epilogue is None else join(first, node, epilogue, match.graph, storage, target)
        if attributes is None:
            return None
        constants = (t for n in (first, node) for t in weights_and_bias(match.graph, n, match.graph.new))
        return [joined_node(kind, attributes, first, node, (first.inputs[0], *constants))]

    pattern = op("convolution|depthwise", op("convolution|depthwise", name="first", alone=True))
    return rewrite(graph, [Rule(kind, pattern, fuse)]).graph


def _multiplies_integers(convolution: Node, graph: Draft, storage: Storages, target: Target) -> bool:
    """Whether a convolution has a kernel of its own that multiplies integers, which no kernel of bands does."""
    on_grid = storage[convolution.inputs[0]].grid is not None
    return target.integer_unit is not None and on_grid and graph[convolution.inputs[1]].scale is not None


def _convolution_depthwise(
    first: Node, second: Node, epilogue: tuple[EpilogueOp, ...], graph: Draft, storage: Storages, target: Target
) -> ConvolutionDepthwise | None:
    before, after = first.attributes, second.attributes
    if _multiplies_integers(first, graph, storage, target):
        return None
    if not (isinstance(before, Convolution) and isinstance(after, Depthwise) and unrolls(after)) or before.groups != 1:
        return None
    attributes = ConvolutionDepthwise(before.window, after.window, epilogue)
    src, dst = storage[first.inputs[0]], storage[second.output].geometry
    together = band_candidates(attributes, src, dst, target)
    work, between = band_work(Band(1, dst.height), attributes, src, dst, target), storage[first.output]
    alone = cycles(PairWork(work, between, depthwise_rate(after.window, target)), target)
    return attributes if together and together[0].cycles < alone else None


def _depthwise_pointwise(
    first: Node, second: Node, epilogue: tuple[EpilogueOp, ...], graph: Draft, storage: Storages, target: Target
) -> DepthwisePointwise | None:
    before = first.attributes
    if _multiplies_integers(second, graph, storage, target):
        return None
    if not (isinstance(before, Depthwise) and unrolls(before) and is_pointwise(second)):
        return None
    src, dst = storage[first.inputs[0]], storage[second.output].geometry
    together = depthwise_pointwise_bands(before.window, src, dst, target)
    work = depthwise_pointwise_work(Band(1, dst.height), before.window, src, dst, target)
    alone = cycles(PairWork(work, storage[first.output], depthwise_rate(before.window, target)), target)
    return DepthwisePointwise(before.window, epilogue) if together and together[0].cycles < alone else None
