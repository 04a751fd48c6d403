"""Long sums of few results in two kernels: the first computes shares of each sum, the second adds them up.

The work-groups of one kernel cannot wait for each other, so a sum that several of them are to compute needs a second
one. That is worth its launch where a single kernel would leave most compute units idle while the others walk through
thousands of steps: a convolution of a long window or of few pixels, a layer of one row, the mean of a large tensor.

The mean, the layer and the softmax of a classifier are little work: they take the time of kernels that wait for each
other. Of the mean, no work-group of the first kernel needs more than its own share of the channels. The softmax is a
single group, to which a few loads at once are hardly more than one.

One kernel of attention has a work-group for some rows of a head. Those of few rows or heads leave compute units idle
(Dao et al. 2023, Flash-Decoding).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, prod

from tflgpu.graph.ir import EpilogueOp, Graph, Input, Node, Tensor, TensorId, Value, epilogue_after_first, joint_sources
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.graph.rewrite_rules import Built, Draft, Match, NewTensors, Rule, op
from tflgpu.kernels.architecture import lowering_of, sharing_lowering
from tflgpu.kernels.attention import Attention
from tflgpu.kernels.demand import cycles
from tflgpu.kernels.fusing import epilogue_behind, epilogue_without_inputs, is_pointwise, kernel_inputs
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.attention_kernel import JoinedAttention, rows_work
from tflgpu.kernels.gpu.fully_connected_kernels import LAYER_OF_MEAN, LayerOfMean, layer_candidates
from tflgpu.kernels.kernel import Join, Shares, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.tiling import tile_count, waves
from tflgpu.ops.arithmetic.reduction import Reduce, Softmax
from tflgpu.target import Target
from tflgpu.target.corrections import corrected

# The part of a device's largest buffer that the tensor between the two kernels may take.
PART_OF_BUFFER = 8


@dataclass(frozen=True)
class Division:
    """Two nodes in the place of one, and the storage of what is between them."""

    nodes: tuple[Node, Node]
    storage: Mapping[TensorId, Storage]


Divide = Callable[[Request, NewTensors], Division | None]


def divide_nodes(planning: Planning, divide: Divide) -> Planning:
    """Put two nodes for each that ``divide`` divides."""
    tensors = NewTensors(planning.graph)
    divided = {node.output: two for node in planning.graph.nodes if (two := divide(planning.request(node), tensors))}
    graph = planning.graph.with_replaced({output: two.nodes for output, two in divided.items()}, tensors)
    return planning.with_graph(graph, {t: each for two in divided.values() for t, each in two.storage.items()})


def fits(between: Storage, target: Target) -> bool:
    """Whether a device has room for what the first kernel leaves for the second."""
    return between.bytes <= target.limits.of_plans.allocation_bytes // PART_OF_BUFFER


COUNTS = (2, 4, 8, 16, 32, 64)

LITTLE = 1.1  # times the least cycles, which fewer shares may take

ELEMENTS = 1 << 20  # of all shares of a result: they are written and read again


@GPU.rewrite("share", after=("gpu.divide_classifiers",))
def share_sums(planning: Planning) -> Planning:
    """Put two nodes for one wherever they are faster."""
    return divide_nodes(planning, _shared)


def _shared(request: Request, new: NewTensors) -> Division | None:
    node, graph = request.node, request.graph
    count = best_count(request)
    if count == 1:
        return None
    first, *others = graph[node.output].shape
    shares = new.add(Tensor(-1, "", (count * first, *others), precise=graph[node.output].precise))
    storage = {shares.id: Storage(Geometry(shares.shape), "float")}
    return Division(_shares_and_join(graph, node, shares.id, count), storage)


def best_count(request: Request) -> int:
    """Return the number of shares that takes the least time by the cost model; 1 for a single kernel."""
    cycles = cycles_by_count(request)
    if len(cycles) < 2:
        return 1
    cycles[1] = corrected("a sum in one kernel", cycles[1], min(cycles[n] for n in cycles if n > 1))
    least = min(cycles.values())
    return next(count for count, estimate in cycles.items() if estimate <= LITTLE * least)


def cycles_by_count(request: Request) -> dict[int, float]:
    """Return the cycles of a node by the number of shares, as far as they may pay; none for what cannot be shared."""
    node, target = request.node, request.target
    if node.in_place or node.side_outputs or len(request.output.geometry.shape) < 2 or 0 in node.epilogue_inputs:
        return {}
    best = lowering_of(request).best
    if best is None or request.input(0).vector != "float":
        return {}
    whole = best(request)
    assert whole is not None
    cycles, joining = {1: whole.cycles}, joining_cycles(target)
    if whole.cycles < joining + target.cost_model.tile_latency or whole.work.tiles >= target.compute_units:
        return cycles
    elements = request.output.geometry.elements
    for count in COUNTS:
        shared = replace(request, shares=count)
        lowering = sharing_lowering(shared)
        fastest = lowering.best(shared) if lowering is not None and lowering.best is not None else None
        if fastest is not None and count * elements <= ELEMENTS:
            cycles[count] = fastest.cycles + joining
    return cycles


def least_cycles(request: Request) -> float:
    """Return the cycles of a node in one kernel or in shares; infinitely many if the cost model does not know them."""
    return min(cycles_by_count(request).values(), default=inf)


def joining_cycles(target: Target, waves: int = 1) -> float:
    """Return the cycles of a second kernel, whose work-items load once."""
    model = target.cost_model
    return waiting_cycles(target) + waves * (model.tile_latency + model.batch_latency)


def waiting_cycles(target: Target) -> float:
    """From a kernel to one that depends on it."""
    return max(0.0, target.cost_model.next_kernel(target.executor))


def _shares_and_join(graph: Graph, node: Node, shares: TensorId, count: int) -> tuple[Node, Node]:
    """Return the two nodes in the place of one. shares: what the first writes."""
    known, attributes = kernel_inputs(node), node.attributes
    whole, join = replace(node, inputs=node.inputs[:known], epilogue=()), Join(count)
    if isinstance(attributes, Reduce):
        function = "sum" if attributes.function == "mean" else attributes.function
        whole = replace(whole, attributes=replace(attributes, function=function))
        elements = prod(graph[node.inputs[0]].shape[axis] for axis in attributes.axes)
        join = Join(
            count,
            "sum" if function == "sum_of_squares" else function,
            elements if attributes.function == "mean" else 1,
        )
    inputs = shares, *node.inputs[known:]
    return (
        Node("shares", whole.inputs, shares, Shares(whole, count), sources=node.sources),
        Node("join", inputs, node.output, join, epilogue_behind(node, 1), node.sources),
    )


@dataclass(frozen=True)
class Head:
    """``softmax(layer(mean(image)))`` of one image, where nothing else reads what is in between.

    mean_epilogue: ops on the mean. factor: the constant of channels that the layer multiplies by, if there is one.
    sum_epilogue: ops on the layer's sums after that.
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
        count = _best_count_of_head(head, planning, planning.target_of(tensor))
        if not count:
            return None
        layer = graph[head.layer.output]
        first, *others = layer.shape
        graph.new.keep([Tensor(tensor, "", (count * first, *others), precise=layer.precise)])
        storage[tensor] = Storage(Geometry(graph[tensor].shape), "float")
        return _divided_head(head, tensor, count)

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


def _best_count_of_head(head: Head, planning: Planning, target: Target) -> int:
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


def _divided_head(head: Head, shares: TensorId, count: int) -> tuple[Node, Node]:
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


PARTS = (2, 3, 4, 5, 6, 8, 12, 16)


@GPU.rewrite("divide")
def divide_keys(planning: Planning) -> Planning:
    """Put two nodes for an attention of few rows wherever they take less time by the cost model."""
    return divide_nodes(planning, _divided)


def _divided(request: Request, new: NewTensors) -> Division | None:
    attention, target = request.node.attributes, request.target
    if not isinstance(attention, Attention) or attention.parts > 1 or lowering_of(request).architecture is not GPU:
        return None

    def rows_cycles(divided: Attention) -> float | None:
        every_part_has_a_key = (divided.parts - 1) * tile_count(divided.keys, divided.parts) < divided.keys
        return cycles(rows_work(divided, target), target) if every_part_has_a_key else None

    return in_parts(request, attention, rows_cycles, new)


def in_parts(
    request: Request, attention: Attention, cycles_of: Callable[[Attention], float | None], new: NewTensors
) -> Division | None:
    """Two nodes for an attention, the first of which divides the keys; None if one takes less time.

    Also if there is no room for the results of the first. cycles_of: of the first; None if it cannot be divided so.
    """
    node, target = request.node, request.target
    vec4s = attention.heads * attention.rows * attention.value_depth // LANES
    joining = joining_cycles(target, waves(tile_count(vec4s, target.local_size), target))
    cycles_by_parts: dict[int, float] = {}
    for parts in (1, *PARTS):
        own = cycles_of(replace(attention, parts=parts))
        if own is not None:
            cycles_by_parts[parts] = own + (joining if parts > 1 else 0)
    divided = replace(attention, parts=min(cycles_by_parts, key=cycles_by_parts.__getitem__))
    if divided.parts == 1:
        return None
    shape = (attention.heads * divided.parts * attention.rows, attention.value_depth + LANES)
    between, known = Storage(Geometry(shape), "float"), kernel_inputs(node)
    if not fits(between, target):
        return None
    results = new.add(Tensor(-1, "", shape, precise=request.graph[node.output].precise))
    first = Node("attention", node.inputs[:known], results.id, divided, sources=node.sources)
    inputs = results.id, *node.inputs[known:]
    second = Node(
        "join_attention", inputs, node.output, JoinedAttention(divided), epilogue_behind(node, 1), node.sources
    )
    return Division((first, second), {results.id: between})
