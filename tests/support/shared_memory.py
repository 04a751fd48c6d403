"""Plans in which the epilogue of each kernel reads an operand that lies in the memory of the kernel's output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Node, TensorId, Value, roots
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.kernel import Shares, Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.plan import Plan
from tflgpu.plan.placement import placement
from tflgpu.plan.planning import planned_kernel

NAME = "an operand that changes nothing"


def with_operands(plan: Plan) -> Plan:
    """The same plan, but that kernels multiply their results by ones of another kernel; on a grid they add zeros.

    That changes no result, unless it is done twice, or with elements that the kernel itself has written. What was to be
    an output of the model is copied there, so that each kernel's result lies in the arena.
    """
    planning = _extended(Planning(plan.graph, plan.target, plan.storage))
    graph, storage = planning.graph, planning.storage
    computed = (node for node in graph.nodes if not node.in_place and graph[node.output].size)
    kernels, places = placement(graph, [planned_kernel(node, planning) for node in computed], storage, plan.target)
    return Plan(**vars(places), graph=graph, target=plan.target, kernels=kernels, storage=storage)


def stored_over(plan: Plan) -> Iterator[str]:
    """The template of each kernel whose output has taken the memory of such ones or zeros."""
    for kernel in plan.kernels:
        operands = [t for t in kernel.node.inputs if plan.graph[t].name == NAME]
        yield from (kernel.kernel.template for t in operands if plan.offsets[t] == plan.offsets[kernel.node.output])


def _extended(planning: Planning) -> Planning:
    graph, storage, new, nodes = planning.graph, dict(planning.storage), NewTensors(planning.graph), list[Node]()
    root = roots(graph)
    outside = {root[t] for t in graph.wanted}
    for node in graph.nodes:
        output = graph[node.output]
        if node.in_place or not output.size or node.kind == "overwrite" or not _takes_operand(node, storage[output.id]):
            nodes.append(node)
            continue
        on_grid = storage[output.id].grid is not None
        value = new.constant((np.zeros if on_grid else np.ones)(output.shape, output.dtype))
        operand = new.add(replace(output, name=NAME))
        result = new.like(output, output.shape) if output.id in outside else output
        inner = replace(storage[output.id], linear=False)  # no epilogue reads an operand in the host's order
        storage |= dict.fromkeys((operand.id, *{result.id} - {output.id}), inner)
        nodes.append(Node("map", (value,), operand.id))
        nodes.append(_with_operand(node, "add" if on_grid else "mul", operand.id, result.id))
        if result is not output:
            nodes.append(Node("map", (result.id,), output.id))
    return planning.with_graph(planning.graph.with_nodes(nodes, new), storage)


def _takes_operand(node: Node, output: Storage) -> bool:
    """Tell whether one more epilogue op may be appended; before the rounding to a grid, if the output is on one.

    Shares of a sum have no epilogue: the kernel that adds them up has it.
    """
    if isinstance(node.attributes, Shares):
        return False
    last = node.epilogue[-1] if node.epilogue else None
    is_rounded = last is not None and (last.function, last.operands) == (
        "fake_quantize",
        (Value(len(node.epilogue) - 1),),
    )
    return output.grid is None or is_rounded


def _with_operand(node: Node, function: str, operand: TensorId, result: TensorId) -> Node:
    rounding = node.epilogue[-1:] if function == "add" else ()
    before = node.epilogue[: len(node.epilogue) - len(rounding)]
    op = EpilogueOp(function, (Value(len(before)), Input(len(node.inputs))))
    after = (replace(last, operands=(Value(len(before) + 1),)) for last in rounding)
    return replace(node, inputs=(*node.inputs, operand), output=result, epilogue=(*before, op, *after))
