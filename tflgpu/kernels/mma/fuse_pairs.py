"""Make one node of two neighbours that one kernel computes faster, on tensor cores.

Neighbours are a node and the only one that reads it, as its first input. So each node has at most one neighbour on
either side, and belongs to at most one pair. Of all ways to form pairs along a chain, the one that saves the most
cycles by the target's cost model is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from tflgpu.graph.ir import Graph, Node, TensorId
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.candidates import Candidate
from tflgpu.kernels.convolutions import unrolls
from tflgpu.kernels.fusing import (
    DepthwisePointwise,
    epilogue_without_inputs,
    is_pointwise,
    joined_node,
    kernel_inputs,
    weights_and_bias,
)
from tflgpu.kernels.gpu.depthwise_kernels import depthwise_candidates
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.convolution_kernels import convolution_candidates
from tflgpu.kernels.mma.depthwise_pointwise import depthwise_pointwise_candidates
from tflgpu.kernels.mma.diagonal_depthwise import diagonal_candidates
from tflgpu.kernels.mma.m16n8k16 import operands_of_image
from tflgpu.kernels.mma.pointwise_depthwise import PointwiseDepthwise, pointwise_depthwise_candidates
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.ops.image.window import Window
from tflgpu.target import Target

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
