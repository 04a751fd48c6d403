"""Long sums of few results, in two kernels: the first computes shares of each sum, the second adds them up.

The work-groups of one kernel cannot wait for each other, so a sum that several of them are to compute needs a second
one. That is worth its launch where a single kernel would leave most compute units idle while the others walk through
thousands of steps: a convolution of a long window or of few pixels, a layer of one row, the mean of a large tensor.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, prod

from tflgpu.graph.ir import Graph, Node, Tensor, TensorId
from tflgpu.graph.layout import Geometry
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.architecture import lowering_of, sharing_lowering
from tflgpu.kernels.fusing import epilogue_behind, kernel_inputs
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.divided.division import Division, divide_nodes
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.shares import Join, Shares
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.target import Target
from tflgpu.target.corrections import corrected

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
