"""The end of a classifier in two kernels: shares of a layer of its image's mean, and the softmax that adds them up.

Mean, layer and softmax are little work: they take the time of kernels that wait for each other. Of the mean, no
work-group of the first kernel needs more than its own share of the channels. The softmax is a single group, to which a
few loads at once are hardly more than one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tflgpu.graph.ir import EpilogueOp, Input, Node, Tensor, TensorId, Value, epilogue_after_first, joint_sources
from tflgpu.graph.layout import Geometry
from tflgpu.graph.rewrite_rules import Built, Draft, Match, Rule, op
from tflgpu.kernels.fusing import epilogue_without_inputs, is_pointwise, kernel_inputs
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.divided.shared_sums import COUNTS, least_cycles, waiting_cycles
from tflgpu.kernels.gpu.layer_of_mean import LAYER_OF_MEAN, LayerOfMean, layer_candidates
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.shares import Shares
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.arithmetic.reduction import Reduce, Softmax
from tflgpu.target import Target


@dataclass(frozen=True)
class Head:
    """``softmax(layer(mean(image)))`` of one image, where nothing else reads what is in between.

    mean_epilogue: ops on the mean. factor: the constant of
    channels that the layer multiplies by, if there is one. sum_epilogue: ops on the layer's sums after that.
    """

    mean: Node
    layer: Node
    softmax: Node
    mean_epilogue: tuple[EpilogueOp, ...]
    factor: TensorId | None
    sum_epilogue: tuple[EpilogueOp, ...]


@GPU.rewrite("share", fuses=True)
def divide_classifiers(planning: Planning) -> Planning:
    """Put two nodes for the ends of classifiers that run faster so."""
    storage = dict(planning.storage)

    def divide(match: Match) -> Built:
        graph = match.graph
        head = _head(graph, storage, match.node)
        if head is None:
            return None
        tensor = next(graph.new.ids)
        count = _best_count(head, planning, planning.target_of(tensor))
        if not count:
            return None
        layer = graph[head.layer.output]
        first, *others = layer.shape
        graph.new.keep([Tensor(tensor, "", (count * first, *others), precise=layer.precise)])
        storage[tensor] = Storage(Geometry(graph[tensor].shape), "float")
        return _divided(head, tensor, count)

    return planning.rewritten(Rule("divide_classifiers", op("softmax"), divide), storage=storage)


def _head(graph: Draft, storage: Mapping[TensorId, Storage], softmax: Node) -> Head | None:
    """Return what ends with ``softmax``, if it is the end of a classifier of one image."""
    if not isinstance(softmax.attributes, Softmax) or storage[softmax.output].pixels != 1:
        return None
    layer = _source(graph, softmax.inputs[0])
    if layer is None or not _is_layer(graph, layer):
        return None
    mean = _source(graph, layer.inputs[0])
    if mean is None or mean.attributes != Reduce("mean", (1, 2)):
        return None
    mean_epilogue = epilogue_without_inputs(graph, mean, reads_padding=False)
    factor, rest = _factor(graph, layer)
    sum_epilogue = epilogue_without_inputs(graph, rest, reads_padding=False)
    if mean_epilogue is None or sum_epilogue is None:
        return None
    image, weights = storage.get(mean.inputs[0]), graph[layer.inputs[1]]
    if image is None or image.linear or image.type not in ("half", "float"):
        return None
    reads_all = weights.size == image.channels * graph[layer.output].size  # of one image, not the means of several
    return Head(mean, layer, softmax, mean_epilogue, factor, sum_epilogue) if reads_all else None


def _source(graph: Draft, tensor: TensorId) -> Node | None:
    """Return the node that computes what a tensor is a view of; None if anything else reads it or a view of it."""
    while graph.sole_consumer(tensor) is not None:
        node = graph.producer.get(tensor)
        if node is None or not node.is_view:
            return node
        tensor = node.inputs[0]
    return None


def _is_layer(graph: Draft, node: Node) -> bool:
    """Whether a node multiplies by constants and adds constants at most, whatever its epilogue."""
    is_product = node.kind == "fully_connected" or is_pointwise(node)
    return is_product and all(graph[t].is_constant for t in node.inputs[1:])


def _factor(graph: Draft, layer: Node) -> tuple[TensorId | None, Node]:
    """Return the constant of channels by which a layer multiplies its sums first, and the layer without that."""
    match layer.epilogue[:1]:
        case (EpilogueOp("mul", (Value(0), Input(place))),):
            factor = graph[layer.inputs[place]]
        case _:
            return None, layer
    if factor.size != graph[layer.output].shape[-1] or any(Value(0) in op.operands for op in layer.epilogue[1:]):
        return None, layer
    return factor.id, replace(layer, epilogue=epilogue_after_first(layer.epilogue))


def _best_count(head: Head, planning: Planning, target: Target) -> int:
    """Return the number of shares that takes the least time by the cost model; 0 if three kernels take less."""
    graph, storage = planning.graph, planning.storage
    apart = (least_cycles(Request(node, graph, storage, target)) for node in (head.mean, head.layer))
    cycles = {0: sum(apart) + waiting_cycles(target)}
    image, result = storage[head.mean.inputs[0]], storage[head.layer.output]
    # A work-item of the softmax keeps its slice, or goes through all of its own for a maximum, a sum and quotients.
    turns = tile_count(result.slices, target.local_size)
    loads = turns if turns == 1 else 3 * turns
    for count in (1, *COUNTS):
        if count <= image.slices and (found := layer_candidates(image, result, target, count)):
            joining = target.cost_model.working(target.local_size, (count - 1) * loads, 0, ())
            cycles[count] = found[0].cycles + joining
    return min(cycles, key=cycles.__getitem__)


def _divided(head: Head, shares: TensorId, count: int) -> tuple[Node, Node]:
    """Return the two nodes in the place of a head. shares: what the first writes."""
    assert isinstance(head.softmax.attributes, Softmax)
    weights, sources = head.layer.inputs[1 : kernel_inputs(head.layer)], joint_sources(head.mean, head.layer)
    layer = Node(
        LAYER_OF_MEAN, (head.mean.inputs[0], *weights), shares, LayerOfMean(head.mean_epilogue), sources=sources
    )
    summed = replace(head.softmax.attributes, shares=count, sum_epilogue=head.sum_epilogue)
    divided = replace(layer, kind="shares", attributes=Shares(layer, count))
    if head.factor is not None:  # of the whole is that of each share
        product = EpilogueOp("mul", (Value(0), Input(len(layer.inputs))))
        divided = replace(divided, inputs=(*layer.inputs, head.factor), epilogue=(product,))
    return (
        divided,
        replace(head.softmax, inputs=(shares, *head.softmax.inputs[1:]), attributes=summed),
    )
