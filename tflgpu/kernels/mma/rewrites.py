"""Nodes that tensor cores compute as one, or as two where one would leave compute units idle.

Neighbours are a node and the only one that reads it, as its first input. So each node has at most one neighbour on
either side, and belongs to at most one pair. Of all ways to form pairs along a chain, the one that saves the most
cycles by the target's cost model is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from tflgpu.graph.ir import EpilogueOp, Graph, Node, Tensor, TensorId, Value, joint_sources
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.graph.rewrite_rules import AnyGraph, Built, Draft, Match, NewTensors, Rule, op, rewrite
from tflgpu.kernels.attention import Attention, with_attention
from tflgpu.kernels.candidates import Candidate, Tile
from tflgpu.kernels.convolutions import unrolls
from tflgpu.kernels.demand import cycles
from tflgpu.kernels.fusing import (
    DepthwisePointwise,
    epilogue_without_inputs,
    is_pointwise,
    joined_node,
    kernel_inputs,
    weights_and_bias,
)
from tflgpu.kernels.gpu.depthwise_kernels import depthwise_candidates
from tflgpu.kernels.gpu.excite_kernel import Excite, SummingWork, excite_work
from tflgpu.kernels.gpu.shared_sums import Division, divide_nodes, in_parts
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.attention_kernel import candidates, has_tile, suits
from tflgpu.kernels.mma.convolution_kernels import convolution_candidates
from tflgpu.kernels.mma.costs import gating_cycles, squeezing_cycles
from tflgpu.kernels.mma.depthwise_pointwise import depthwise_pointwise_candidates
from tflgpu.kernels.mma.diagonal_depthwise import diagonal_candidates
from tflgpu.kernels.mma.excited_pointwise import (
    EXCITED_POINTWISE,
    HALVES,
    MAPPED_POINTWISE,
    ExcitedPointwise,
    MappedPointwise,
    excited_candidates,
    mapped_candidates,
    mapping_cycles,
)
from tflgpu.kernels.mma.m16n8k16 import operands_of_image
from tflgpu.kernels.mma.pointwise_depthwise import PointwiseDepthwise, pointwise_depthwise_candidates
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.epilogue_ops import FUNCTIONS
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.ops.image.window import POINTWISE, Window
from tflgpu.target import Target


@MMA.fusion()
def fuse_attention(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each attention of halves for which there is a tile."""
    return with_attention(
        graph, storage, lambda attention, inputs: has_tile(attention, [storage[t].type for t in inputs[:3]], target)
    )


@MMA.rewrite("divide")
def divide_attention(planning: Planning) -> Planning:
    """Put two nodes for an attention wherever they take less time by the cost model."""
    return divide_nodes(planning, _divided)


def _divided(request: Request, new: NewTensors) -> Division | None:
    attention, target = request.node.attributes, request.target
    if not isinstance(attention, Attention) or not suits(request):
        return None

    def least_cycles(divided: Attention) -> float | None:
        return next((candidate.cycles for candidate in candidates(divided, target)), None)

    return in_parts(request, attention, least_cycles, new)


@MMA.fusion(after=("gpu.fuse_excitations",))
def fuse_mapped_pointwise(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each map and the pointwise convolution or layer of it that run faster so."""

    def fuse(match: Match) -> Built:
        mapped, node = match["mapped"], match.node
        if not _is_faster_mapped(match.graph, storage, mapped, node, target):
            return None
        constants = mapped.inputs[1:]
        inputs = (mapped.inputs[0], *weights_and_bias(match.graph, node, match.graph.new), *constants)
        attributes = MappedPointwise(mapped.epilogue, len(constants))
        return [joined_node(MAPPED_POINTWISE, attributes, mapped, node, inputs)]

    pattern = op("convolution|fully_connected", op("map", name="mapped", alone=True))
    return rewrite(graph, [Rule("fuse_mapped_pointwise", pattern, fuse)]).graph


def _is_faster_mapped(
    graph: Draft, storage: Mapping[TensorId, Storage], mapped: Node, node: Node, target: Target
) -> bool:
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


Storages = Mapping[TensorId, Storage]


@dataclass(frozen=True)
class PairKind:
    """Two kinds of neighbours that one kernel can compute.

    name: the kind of the one node. first, second: whether a node is the one. attributes: of the one node, from both.
    candidates: of its kernel, the fastest first, from the second node and the storage of image and result; none if
    local memory is too small.
    """

    name: str
    first: Callable[[Node], bool]
    second: Callable[[Node], bool]
    attributes: Callable[[Node, Node], object]
    candidates: Callable[[Node, Storage, Storage, Target], Sequence[Candidate[Any, Any]]]


def _is_depthwise(node: Node) -> bool:
    return unrolls(node.attributes)


def _depthwise_window(node: Node) -> Window:
    assert isinstance(node.attributes, Depthwise)
    return node.attributes.window


PAIR_KINDS = (
    PairKind(
        "pointwise_depthwise",
        is_pointwise,
        _is_depthwise,
        lambda first, second: PointwiseDepthwise(_depthwise_window(second), first.epilogue),
        lambda second, image, result, target: pointwise_depthwise_candidates(
            _depthwise_window(second), image, result, target
        ),
    ),
    PairKind(
        "depthwise_pointwise",
        _is_depthwise,
        is_pointwise,
        lambda first, second: DepthwisePointwise(_depthwise_window(first), first.epilogue),
        lambda second, image, result, target: depthwise_pointwise_candidates(image, result, target),
    ),
)


@dataclass(frozen=True)
class Pair:
    """Two neighbours, and the cycles that one kernel of both saves. The first one's epilogue reads no inputs."""

    kind: PairKind
    first: Node
    second: Node
    saved: float


@MMA.fusion(after=("mma.fuse_excited_pointwise", "mma.fuse_mapped_pointwise"))
def fuse_pairs(graph: Graph, storage: Storages, target: Target) -> Graph:
    """One node for each pair that runs faster so on ``target``."""
    pairs = best_pairs({pair.second.output: pair for pair in _pairs(graph, storage, target)})
    zeros = NewTensors(graph)

    def joined(pair: Pair) -> Node:
        constants = (weights_and_bias(graph, node, zeros) for node in (pair.first, pair.second))
        inputs = (pair.first.inputs[0], *chain(*constants))
        attributes = pair.kind.attributes(pair.first, pair.second)
        return joined_node(pair.kind.name, attributes, pair.first, pair.second, inputs)

    replaced: dict[TensorId, tuple[Node, ...]] = {pair.first.output: () for pair in pairs.values()}
    replaced |= {output: (joined(pair),) for output, pair in pairs.items()}
    return graph.with_replaced(replaced, zeros)


def _pairs(graph: Graph, storage: Storages, target: Target) -> Iterator[Pair]:
    """Every pair of neighbours that one kernel can compute, and computes faster, in the order of the second."""
    for second in graph.of_kind("convolution", "depthwise"):
        first = graph.producer.get(second.inputs[0])
        kind = next((k for k in PAIR_KINDS if first and k.first(first) and k.second(second)), None)
        if first is None or kind is None or not _fusable(graph, storage, first, second):
            continue
        epilogue = epilogue_without_inputs(graph, first)
        together = kind.candidates(second, storage[first.inputs[0]], storage[second.output], target)
        between = target.cost_model.next_kernel(target.executor)
        alone = _cycles(storage, first, target) + between + _cycles(storage, second, target)
        if epilogue is not None and together and together[0].cycles < alone:
            first = replace(first, inputs=first.inputs[: kernel_inputs(first)], epilogue=epilogue)
            yield Pair(kind, first, second, alone - together[0].cycles)


def best_pairs(pairs: Mapping[TensorId, Pair]) -> dict[TensorId, Pair]:
    """Return the pairs that save the most together, none of which share a node. ``pairs``: by their second's output."""
    saved: dict[TensorId, float] = {}  # by the nodes of a chain up to this one
    joined: set[TensorId] = set()  # where the best of these ways ends with a pair
    for output, pair in pairs.items():
        before = pairs.get(pair.first.output)
        apart = saved.get(pair.first.output, 0.0)
        together = pair.saved + (saved.get(before.first.output, 0.0) if before else 0.0)
        saved[output] = max(apart, together)
        if together > apart:
            joined.add(output)
    chosen: dict[TensorId, Pair] = {}
    taken: set[TensorId] = set()
    for output, pair in reversed(list(pairs.items())):
        if output in joined and output not in taken:
            chosen[output] = pair
            taken.add(pair.first.output)
    return chosen


def _fusable(graph: Graph, storage: Storages, first: Node, second: Node) -> bool:
    """Whether two neighbours read an image and constants, and no other node reads what is between them.

    That lies in local memory as the image does in global memory. The one node has to know if it is precise.
    """
    between, image = first.output, storage.get(first.inputs[0])
    return (
        image is not None  # else it is a constant
        and graph[first.inputs[1]].is_constant
        and graph[second.inputs[1]].is_constant
        and graph.sole_consumer(between) is not None
        and image.type == storage[between].type
        and image.type in ("half", "float")
        and not image.linear
        and (graph[first.inputs[0]].precise or not graph[between].precise)
    )


def _cycles(storage: Storages, node: Node, target: Target) -> float:
    """Cycles of a kernel of one node of a pair."""
    result = storage[node.output]
    match node.attributes:
        case Depthwise(window):
            multiplies_halves = storage[node.inputs[0]].type == target.storage == "half"
            candidates = diagonal_candidates if multiplies_halves else depthwise_candidates
            return candidates(window, result, target)[0].cycles
        case Convolution(window):
            image = storage[node.inputs[0]]
            operands = operands_of_image(image, target.storage)
            return convolution_candidates(operands, window, image, result, target)[0].cycles
    raise TypeError(f"a {node.kind} is no part of a pair")


@MMA.fusion(after=("gpu.fuse_excitations",))
def fuse_excited_pointwise(graph: Graph, storage: Mapping[TensorId, Storage], target: Target) -> Graph:
    """One node for each excitation and the pointwise convolution after it that run faster so."""

    def fuse(match: Match) -> Built:
        excited, node = match["excited"], match.node
        if not _is_faster_excited(match.graph, storage, excited, node, target):
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


def _is_faster_excited(
    graph: AnyGraph, storage: Mapping[TensorId, Storage], excited: Node, node: Node, target: Target
) -> bool:
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
