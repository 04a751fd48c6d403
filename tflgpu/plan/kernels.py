"""A node -> a launch: its kernel, its epilogue as templates see it, and its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tflgpu.errors import internal_faults
from tflgpu.graph.ir import Node, Value
from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import Access
from tflgpu.kernels.architecture import lower_node
from tflgpu.kernels.candidates import TileConfig
from tflgpu.kernels.kernel import Argument, Grid, Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.epilogue_ops import FUNCTIONS
from tflgpu.plan.plan import Destination, EpilogueOperand, PlannedEpilogueOp, PlannedKernel
from tflgpu.target import VectorType


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
