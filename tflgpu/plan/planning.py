"""Graph and target -> plan: the passes for the device, then kernels, memory, and which executor is faster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Literal

from tflgpu.errors import internal_faults
from tflgpu.graph.ir import Graph, Node, Value
from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import Access
from tflgpu.kernels.architecture import lower_node
from tflgpu.kernels.candidates import TileConfig
from tflgpu.kernels.kernel import Argument, Grid, Kernel, Storage
from tflgpu.kernels.request import Chooser, Request, first_ranked
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.tiling import waves
from tflgpu.ops.epilogue_ops import FUNCTIONS
from tflgpu.passes.device import planned
from tflgpu.plan.barrier_intervals import barrier_intervals
from tflgpu.plan.placement import placement
from tflgpu.plan.plan import Destination, EpilogueOperand, Plan, PlannedEpilogueOp, PlannedKernel, traffic
from tflgpu.plan.program_parts import find_runs
from tflgpu.target import WHOLE_PLAN, Target, VectorType, cpu_work


def planned_kernel(node: Node, planning: Planning) -> PlannedKernel:
    """Return the kernel of a node. Raises InternalError that names the node's operators."""
    with internal_faults(f"planning {node.title}"):
        return _planned(node, planning)


def _planned(node: Node, planning: Planning) -> PlannedKernel:
    chosen: list[TileConfig] = []

    def choose(request: Request, ranked: Sequence[TileConfig]) -> TileConfig:
        chosen.append(planning.chooser(request, ranked))
        return chosen[-1]

    request = planning.lowering_request(node, choose)
    target = request.target
    kernel = lower_node(request)
    output = request.output
    destination = Argument("dst", output.type, node.output, None, written=True, grid=output.grid)
    arguments = [destination, *kernel.arguments]
    accesses: dict[int, Access] = {}
    for index in sorted(node.epilogue_inputs):
        # Compilers for CPUs would load them before all loops, and then accumulators spill (64% more time).
        argument = replace(request.operand(f"operand{index}", index), restrict=target.family != "cpu")
        arguments.append(argument)
        accesses[index] = request.operand_access(argument, index)
    epilogue = _planned_epilogue(node, kernel.value_type, accesses)
    result = epilogue[-1].type if epilogue else kernel.value_type
    if result != output.vector:
        raise TypeError(f"{node.kind} ends with {result} values, but its output holds {output.type}")
    if output.grid is not None and epilogue:
        epilogue = (*epilogue[:-1], *_to_integers(epilogue[-1], output.grid))
    stored = Destination(output, _is_dirty(kernel, epilogue, output))
    return PlannedKernel(request.key(chosen), node, kernel, epilogue, stored, tuple(arguments))


def _to_integers(op: PlannedEpilogueOp, grid: Grid) -> tuple[PlannedEpilogueOp, ...]:
    """Return the last op if its result is stored on the grid that it rounds to: it gives the integers alone."""
    zero = float(grid.zero)
    match op.function, op.parameters:
        case "fake_quantize", (scale, file_zero, low, high, *divisor):
            limits = (limit - file_zero + zero for limit in (low, high))
            parameters = (*(divisor or (scale,)), zero, *limits)
            return (replace(op, function="round_to_grid", type="int", parameters=parameters),)
        case "requantize", (scale, file_zero, low, high, *source):
            limits = (limit - file_zero + zero for limit in (low, high))
            parameters = (scale, zero, *limits, *source)
            return (replace(op, function="quantize", type="int", parameters=parameters),)
        case "dequantize", (_, offset):
            shift = replace(op, function="shift", type="int", parameters=(int(grid.zero - offset),))
            return (shift,) if shift.parameters != (0,) else ()
    return (op,)


def _planned_epilogue(
    node: Node, value_type: VectorType, accesses: Mapping[int, Access]
) -> tuple[PlannedEpilogueOp, ...]:
    """Return the epilogue after a result of ``value_type``. accesses: of the inputs that it reads, by number."""
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


def _operand_type(operand: EpilogueOperand, types: list[VectorType]) -> VectorType:
    if operand.value is not None:
        return types[operand.value]
    assert operand.access is not None
    return operand.access.vector


def _is_dirty(kernel: Kernel, epilogue: tuple[PlannedEpilogueOp, ...], output: Storage) -> bool:
    """Whether the lanes past the last channel could hold anything but zero after the epilogue.

    Products leave NaN there if they read an infinity: the weights of these lanes are zero.
    """
    if output.geometry.channels % LANES == 0 or output.grid is not None:
        return output.geometry.channels % LANES != 0
    clean = [not getattr(kernel.parameters, "dirty", False) and not kernel.macs]
    for op in epilogue:
        operands = (
            clean[o.value] if o.value is not None else bool(o.access and not o.access.splat) for o in op.operands
        )
        clean.append(FUNCTIONS[op.function].keeps_zero and all(operands))
    return not clean[-1]


@internal_faults("planning")
def make_plan(
    graph: Graph,
    target: Target,
    chooser: Chooser = first_ranked,
    *,
    fuse: bool = True,
) -> Plan:
    """Choose storage, kernels and memory for an optimized graph, for one core if it is little work.

    Args:
        graph: After all passes that are the same for every device.
        target: The device. The work-groups of kernels keep to its ``group_sizes``.
        chooser: Chooses tile configurations of kernels, and fusions; by default the cost model does.
        fuse: Whether a kernel may compute several nodes, of which it does not store all results.
    """
    if target.executor != "launch":
        target = target.allowed(WHOLE_PLAN)
    planning = Planning(graph, target, chooser=chooser)
    plan = _plan_within(planning, fuse)
    if target.executor == "claiming" and _work(plan) < target.limits.little_work:
        return _plan_within(replace(planning, target=target.of_one_core), fuse)
    return plan


def _plan_within(planning: Planning, fuse: bool) -> Plan:
    """Return a plan whose kernels keep to ``target.group_sizes``: the nodes of those that do not are planned anew."""
    allowed = dict(planning.target.group_sizes)
    while True:
        plan = _make_plan(planning, fuse)
        known = ((k, allowed[k.key]) for k in plan.kernels if k.key in allowed)
        too_wide = {k.node.output: size for k, size in known if k.kernel.local_size > size}
        if not too_wide:
            return plan
        planning = replace(planning, group_sizes={**planning.group_sizes, **too_wide})


def _make_plan(planning: Planning, fuse: bool) -> Plan:
    result = planned(planning, fuse=fuse)
    graph, storage, target = result.graph, result.storage, result.target
    # A tensor without elements needs no kernel.
    computed = (node for node in graph.nodes if not node.in_place and graph[node.output].size)
    kernels = tuple(planned_kernel(node, result) for node in computed)

    def placed(by_levels: bool) -> Plan:
        ordered, places = placement(graph, kernels, storage, target, by_levels=by_levels)
        found = vars(places) | {"graph": graph, "target": target, "kernels": ordered, "storage": storage}
        return Plan(**found, fusions=result.decisions)

    orders = (True, False) if target.overlaps_kernels else (False,)
    return min(map(placed, orders), key=_waiting_cycles)


def _waiting_cycles(plan: Plan) -> float:
    """Cycles between the kernels of a plan for the persistent executor: barriers, and launches of its parts."""
    if not plan.target.overlaps_kernels:
        return 0.0
    by_interval = defaultdict[int, list[str]](list)
    for interval, kernel in zip(barrier_intervals(plan), plan.kernels, strict=True):
        by_interval[interval].append(kernel.key)
    costs, runs = plan.target.cost_model, find_runs([own for _, own in sorted(by_interval.items())])
    return len(by_interval) * costs.interval_latency + len(runs) * costs.launch_latency


def _work(plan: Plan) -> int:
    return sum(cpu_work(planned.kernel.macs, traffic(plan, planned)) for planned in plan.kernels)


# Waves of a kernel, on average. Up to FEW a launch costs more than what it launches. From MANY on, kernels take so long
# that launches gain more, by having several work-groups on each compute unit. Seen on an H200 (fp16), time of launches
# over persistent: 1.6 to 4 for five networks of 1.0 to 1.3 waves, 1.25 at 2.1 waves, 0.90 to 1.10 for three of 2.9 to
# 4.3, 0.92 at 6.4, 0.82 at 7.9, 0.7 to 0.8 for three of 10 to 16.
FEW, MANY = 3.0, 6.0


def clear_choice(plans: Sequence[Plan]) -> Literal["launch", "persistent"] | None:
    """Return the executor that is surely faster for plans that were made for the persistent one.

    The persistent executor has one work-group on each compute unit, which takes one tile after another: the kernel's
    *waves*. A launch has as many work-groups on each compute unit as fit.

    Args:
        plans: Those of all partitions.

    Returns:
        None if only measuring can tell.
    """
    found = [waves(planned.kernel.tiles, plan.target) for plan in plans for planned in plan.kernels]
    average = fmean(found) if found else 0.0
    if average < FEW:
        return "persistent"
    return "launch" if average > MANY else None
