"""WHILE and IF: into the graph that is being lowered where constants decide, else as pieces apart from it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tflgpu.frontend.control_flow.branch import lower_branch
from tflgpu.frontend.control_flow.callee import Callee, Separate
from tflgpu.frontend.control_flow.loop import lower_loop
from tflgpu.frontend.control_flow.piece import Call
from tflgpu.frontend.control_flow.unroll import unroll
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.model.model import Model, Operator
from tflgpu.model.tensor_info import TensorIndex

CONTROL_FLOW = ("WHILE", "IF")


def lower_call(
    operator: Operator,
    graph: GraphBuilder,
    model: Model,
    callee: Callable[[int], Callee],
    separate: Separate,
    wanted: Collection[TensorIndex],
    *,
    can_be_apart: bool,
) -> Call | str | None:
    """The pieces of a WHILE or an IF; None if ``graph`` now does what it does; or why the device cannot run it.

    callee: of a subgraph by its number, in ``graph``. wanted: tensors of the file that something reads, or that are
    outputs. can_be_apart: whether pieces apart from ``graph`` are allowed.
    Raises ModelError for a subgraph that is not there.
    """
    if operator.code == "IF":
        branch = lower_branch(operator, graph, model, callee, separate)
        if branch is None or isinstance(branch, str) or can_be_apart:
            return branch
        return "which branch it takes is known only at run time"
    obstacle = next(unroll(operator, graph, model, callee), None)
    if obstacle is None or not can_be_apart:
        return obstacle
    state = [value for t in operator.inputs if (value := graph.read(t)) is not None]
    return lower_loop(operator, state, model, separate, wanted)
