"""Make one node of a squeeze-and-excitation and the pointwise convolution after it, and none of its mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tflgpu.graph.ir import EpilogueOp, Graph, Node, Tensor, TensorId, joint_sources
from tflgpu.graph.layout import Geometry
from tflgpu.graph.rewrite_rules import AnyGraph, Built, Match, NewTensors, Rule, op, rewrite
from tflgpu.kernels.candidates import Candidate, Tile
from tflgpu.kernels.convolutions import unrolls
from tflgpu.kernels.demand import cycles
from tflgpu.kernels.fusing import (
    epilogue_without_inputs,
    is_pointwise,
    joined_node,
    kernel_inputs,
    weights_and_bias,
)
from tflgpu.kernels.gpu.excite_kernel import Excite, SummingWork, excite_work
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.convolution_kernels import convolution_candidates
from tflgpu.kernels.mma.costs import gating_cycles, squeezing_cycles
from tflgpu.kernels.mma.diagonal_depthwise import diagonal_candidates
from tflgpu.kernels.mma.excited_pointwise import EXCITED_POINTWISE, HALVES, ExcitedPointwise, excited_candidates
from tflgpu.kernels.mma.pointwise_depthwise import PointwiseDepthwise, pointwise_depthwise_candidates
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.image.convolution import Depthwise
from tflgpu.ops.image.window import POINTWISE
from tflgpu.target import Target


@MMA.fusion(after=("gpu.fuse_excitations",))
def fuse_excited_pointwise(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each excitation and the pointwise convolution after it that run faster so."""

    def fuse(match: Match) -> Built:
        excited, node = match["excited"], match.node
        if not _is_faster(match.graph, storage, excited, node, target):
            return None
        assert isinstance(excited.attributes, Excite)
        mean_epilogue, product_epilogue = _epilogues(match.graph, excited)
        assert mean_epilogue is not None and product_epilogue is not None
        attributes = ExcitedPointwise(excited.attributes, product_epilogue, mean_epilogue=mean_epilogue)
        constants = weights_and_bias(match.graph, node, match.graph.new)
        inputs = (*excited.inputs[: kernel_inputs(excited)], *constants)
        return [joined_node(EXCITED_POINTWISE, attributes, excited, node, inputs)]

    pattern = op("convolution", op("excite", name="excited", alone=True))
    return rewrite(graph, [Rule("fuse_excited_pointwise", pattern, fuse)]).graph


def _is_faster(graph: AnyGraph, storage: Mapping[TensorId, Storage], excited: Node, node: Node, target: Target) -> bool:
    """Whether ``node`` is a convolution that one kernel computes faster together with the excitation that it reads.

    Then the mean takes no kernel either.
    """
    if not is_pointwise(node) or not graph[node.inputs[1]].is_constant:
        return False
    image, vector, between = (storage[t] for t in (*excited.inputs[:2], excited.output))
    result, model = storage[node.output], target.cost_model
    if {image.type, between.type} != {"half"} or image.batch > 1 or not _is_summed(graph, storage, excited):
        return False
    mean_epilogue, product_epilogue = _epilogues(graph, excited)
    # Without a rounded mean, gates are multiplied in half precision, and nothing follows.
    if mean_epilogue is None or product_epilogue is None or bool(product_epilogue) > bool(mean_epilogue):
        return False
    hidden = graph[excited.inputs[2]].shape[0]
    candidates = excited_candidates(image, result, hidden, target, means=bool(mean_epilogue))
    if hidden > target.local_size or not candidates:
        return False
    mean = model.tile_latency
    excitation = cycles(excite_work(image, vector, hidden, target), target)
    apart = convolution_candidates(HALVES, POINTWISE, image, result, target)[0].cycles
    together = candidates[0].cycles + gating_cycles(image, hidden, target)
    return together < mean + excitation + 2 * model.next_kernel(target.executor) + apart


def _is_summed(graph: AnyGraph, storage: Mapping[TensorId, Storage], excited: Node) -> bool:
    """Whether an excitation squeezes an image whose kernel can write the sums of its hidden layer beside it.

    That is so of depthwise convolutions of halves, alone and in one kernel with the pointwise one before.
    """
    image, squeezed = excited.inputs[:2]
    mean, depthwise = graph.producer.get(squeezed), graph.producer.get(image)
    return (
        mean is not None
        and mean.attributes == Reduce("mean", (1, 2))
        and mean.inputs[0] == image
        and graph.sole_consumer(squeezed) is not None
        and depthwise is not None
        and unrolls(depthwise.attributes)
        and storage[depthwise.inputs[0]].type == "half"
        and graph[depthwise.inputs[1]].is_constant
    )


def _epilogues(graph: AnyGraph, excited: Node) -> tuple[tuple[EpilogueOp, ...] | None, tuple[EpilogueOp, ...] | None]:
    """Return the ops on the mean that an excitation reads, and those on its product; None for one that reads inputs."""
    mean = graph.producer[excited.inputs[1]]
    return (
        epilogue_without_inputs(graph, mean, reads_padding=False),
        epilogue_without_inputs(graph, excited, reads_padding=False),
    )


@MMA.rewrite("divide")
def sum_hidden_layers(planning: Planning) -> Planning:
    """Without the means of excitations within convolutions.

    In place of a mean, the kernel of its image writes sums of the hidden layer besides the image, or of the image's
    channels if the mean is rounded and that is faster.
    """
    graph, replaced, storage = planning.graph, dict[TensorId, tuple[Node, ...]](), dict[TensorId, Storage]()
    tensors = NewTensors(graph)
    for reader in graph.of_kind(EXCITED_POINTWISE):
        mean, image = (graph.producer[tensor] for tensor in (reader.inputs[1], reader.inputs[0]))
        assert isinstance(reader.attributes, ExcitedPointwise)
        shape, sums_channels = _sums_of(graph, image, reader, planning)
        written = tensors.add(Tensor(-1, "", shape)).id
        storage[written] = Storage(Geometry(shape), "float")
        attributes = replace(reader.attributes, sums_channels=sums_channels)
        inputs = (image.output, written, *reader.inputs[2:])
        replaced[mean.output] = ()
        replaced[image.output] = (replace(image, side_outputs=(written,), sources=joint_sources(image, mean)),)
        replaced[reader.output] = (replace(reader, inputs=inputs, attributes=attributes),)
    return planning.with_graph(graph.with_replaced(replaced, tensors), storage)


def _sums_of(graph: Graph, image: Node, reader: Node, planning: Planning) -> tuple[tuple[int, ...], bool]:
    """Return the shape of the sums that the kernel of a depthwise convolution writes, and whether they are those of
    channels.

    The convolution is alone, or one kernel with the pointwise one before.
    """
    assert isinstance(reader.attributes, ExcitedPointwise)
    hidden, channels = graph[reader.inputs[2]].shape[0], graph[image.output].shape[-1]
    target = planning.target_of(image.output)
    candidates = _summing_candidates(image, planning.storage, target)
    fastest, whole = candidates[0], next((c for c in candidates if c.work.has_whole_image), None)
    if not reader.attributes.mean_epilogue:
        return (1, 1, fastest.work.tiles, hidden), False
    if whole is None or whole.cycles > fastest.cycles + squeezing_cycles(channels, hidden, target):
        return (1, 1, fastest.work.parts, channels), True
    return (1, 1, whole.work.tiles, hidden), False


def _summing_candidates(
    node: Node, storage: Mapping[TensorId, Storage], target: Target
) -> Sequence[Candidate[Tile, SummingWork]]:
    """Return the ways in which the kernel of a depthwise convolution can do it, the fastest first."""
    image, result = storage[node.inputs[0]], storage[node.output]
    match node.attributes:
        case PointwiseDepthwise(window):
            return pointwise_depthwise_candidates(window, image, result, target)
        case Depthwise(window):
            return diagonal_candidates(window, result, target)
    raise TypeError(f"{node.title} writes no sums beside its result")
