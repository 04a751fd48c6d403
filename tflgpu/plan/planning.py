"""Graph and target -> plan: fusions, storage, kernels and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tflgpu.errors import internal_faults
from tflgpu.graph.ir import Graph, Node, TensorId, Value
from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import Access, access
from tflgpu.kernels.architecture import lower_node
from tflgpu.kernels.chosen_fusions import fuse_nodes
from tflgpu.kernels.cpu.matmul_sides import lay_rows_side_by_side
from tflgpu.kernels.divided.classifiers import divide_classifiers
from tflgpu.kernels.divided.few_channels import divide_convolutions
from tflgpu.kernels.divided.shared_sums import share_sums
from tflgpu.kernels.gpu.lstm_steps import step_lstms
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.mma.excited_pointwise import sum_hidden_layers
from tflgpu.kernels.mma.products.dense_depthwise import make_dense
from tflgpu.kernels.request import Chooser, Request, first_ranked
from tflgpu.kernels.sorting.long_rows import divide_sorts
from tflgpu.ops.epilogue_ops import FUNCTIONS
from tflgpu.plan.boundary import add_conversions, storages
from tflgpu.plan.concatenation import eliminate_concatenations
from tflgpu.plan.placement import placement
from tflgpu.plan.plan import Destination, EpilogueOperand, Plan, PlannedEpilogueOp, PlannedKernel
from tflgpu.plan.states import overwriting, with_short_states
from tflgpu.plan.traffic import traffic
from tflgpu.plan.whole_numbers import make_numbers_whole
from tflgpu.target import Target, VectorType, cpu_work, is_exact_in_half


@internal_faults("planning")
def make_plan(
    graph: Graph,
    target: Target,
    chooser: Chooser = first_ranked,
    group_sizes: Mapping[TensorId, int] | None = None,
    *,
    fuse: bool = True,
) -> Plan:
    """Choose storage, kernels and memory for an optimized graph, for one core if it is little work.

    chooser: of kernels' tile configurations, and of fusions. group_sizes: most work-items of a group of the kernels
    that compute some tensors, where those are fewer than the device's limit. fuse: whether a kernel may compute several
    nodes, of which it does not store all results.
    """
    plan = _make_plan(graph, target, chooser, group_sizes or {}, fuse)
    if target.executor == "claiming" and _work(plan) < target.limits.little_work:
        plan = _make_plan(graph, target.of_one_core, chooser, group_sizes or {}, fuse)
    return plan


def _work(plan: Plan) -> int:
    return sum(cpu_work(planned.kernel.macs, traffic(plan, planned)) for planned in plan.kernels)


def _make_plan(graph: Graph, target: Target, chooser: Chooser, sizes: Mapping[TensorId, int], fuse: bool) -> Plan:
    fusing = target.with_groups(min(sizes.values())) if sizes else target  # a fused node cannot be taken apart again
    graph = with_short_states(add_conversions(graph))
    storage = storages(graph, target)
    graph, fusions = fuse_nodes(graph, storage, fusing, chooser) if fuse else (graph, {})
    graph = make_dense(make_numbers_whole(graph, storage, target), storage, target)
    graph, storage = divide_convolutions(graph, storage, target)
    graph, storage = divide_sorts(graph, storage, target)
    graph, storage = lay_rows_side_by_side(graph, storage, target)
    narrow = {tensor: target.with_groups(size) for tensor, size in sizes.items()}

    def target_of(tensor: TensorId) -> Target:
        return narrow.get(tensor, target)

    graph, storage = sum_hidden_layers(graph, storage, target_of)
    graph, storage = step_lstms(graph, storage, target)
    graph, storage = divide_classifiers(graph, storage, target_of) if fuse else (graph, storage)
    graph, storage = share_sums(graph, storage, target)
    graph = overwriting(eliminate_concatenations(graph, storage))
    # A tensor without elements needs no kernel.
    computed = (n for n in graph.nodes if not n.in_place and graph[n.output].size)
    kernels = tuple(_plan_node(n, graph, storage, target_of(n.output), chooser) for n in computed)
    places = placement(graph, kernels, storage, target)
    return Plan(**vars(places), graph=graph, target=target, kernels=kernels, storage=storage, fusions=fusions)


def _plan_node(
    node: Node, graph: Graph, storage: Mapping[TensorId, Storage], target: Target, chooser: Chooser
) -> PlannedKernel:
    with internal_faults(f"planning {node.title}"):
        return _planned(node, graph, storage, target, chooser)


def _planned(
    node: Node, graph: Graph, storage: Mapping[TensorId, Storage], target: Target, chooser: Chooser
) -> PlannedKernel:
    if any(graph[t].precise for t in (*node.inputs, node.output)):
        # Constants are to be as precise as what they meet.
        target = replace(target, arithmetic="float")
        if not _half_holds_constants(graph, node):
            target = replace(target, storage="float")
    request = Request(node, graph, storage, target, chooser)
    kernel = lower_node(request)
    output = request.output
    arguments = [Argument("dst", output.type, node.output, None, written=True), *kernel.arguments]
    accesses: dict[int, Access] = {}
    for index in sorted(node.epilogue_inputs):
        # Compilers for CPUs would load them before all loops, and then accumulators spill (64% more time).
        argument = replace(request.operand(f"operand{index}", index), restrict=target.family != "cpu")
        arguments.append(argument)
        accesses[index] = access(argument.name, argument.type, request.shape(index).shape, output.geometry.shape)
    epilogue = _planned_epilogue(node, kernel.value_type, accesses)
    result = epilogue[-1].type if epilogue else kernel.value_type
    if result != output.vector:
        raise TypeError(f"{node.kind} ends with {result} values, but its output holds {output.type}")
    destination = Destination(output, _is_dirty(kernel, epilogue, output))
    return PlannedKernel(node, kernel, epilogue, destination, tuple(arguments))


def _planned_epilogue(
    node: Node, value_type: VectorType, accesses: Mapping[int, Access]
) -> tuple[PlannedEpilogueOp, ...]:
    """The epilogue behind a result of ``value_type``. accesses: of the inputs that it reads, by number."""
    types = [value_type]
    planned: list[PlannedEpilogueOp] = []
    for k, op in enumerate(node.epilogue):
        operands = tuple(
            EpilogueOperand(o.index, None) if isinstance(o, Value) else EpilogueOperand(None, accesses[o.index])
            for o in op.operands
        )
        source, result = _operand_type(operands[0], types), FUNCTIONS[op.function].result
        if result == "first" or result == "second":
            types.append(_operand_type(operands[result == "second"], types))
        else:
            types.append(result)
        planned.append(PlannedEpilogueOp(k + 1, op.function, operands, op.parameters, types[-1], source))
    return tuple(planned)


def _half_holds_constants(graph: Graph, node: Node) -> bool:
    """Whether half precision holds every number of a node's weights and other large constants."""
    constants = (graph[t].data for t in node.inputs)
    large = (data for data in constants if data is not None and data.size > max(data.shape, default=1))
    return all(is_exact_in_half(data) for data in large)


def _operand_type(operand: EpilogueOperand, types: list[VectorType]) -> VectorType:
    if operand.value is not None:
        return types[operand.value]
    assert operand.access is not None
    return operand.access.vector


def _is_dirty(kernel: Kernel, epilogue: tuple[PlannedEpilogueOp, ...], output: Storage) -> bool:
    """Whether the lanes past the last channel could hold anything but zero after the epilogue.

    Products leave NaN there if they read an infinity: the weights of these lanes are zero.
    """
    if output.geometry.channels % LANES == 0:
        return False
    clean = [not kernel.parameters.get("dirty", False) and not kernel.macs]
    for op in epilogue:
        operands = (
            clean[o.value] if o.value is not None else bool(o.access and not o.access.splat) for o in op.operands
        )
        clean.append(FUNCTIONS[op.function].keeps_zero and all(operands))
    return not clean[-1]
