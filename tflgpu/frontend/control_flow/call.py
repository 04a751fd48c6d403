"""Operators that call subgraphs: into the graph that is being lowered, or as pieces apart from it.

Composites always become a part of the graph, WHILE and IF where constants decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from tflgpu.frontend.control_flow.branch import lower_branch
from tflgpu.frontend.control_flow.callee import Callee, Separate
from tflgpu.frontend.control_flow.composite import COMPOSITE, inline
from tflgpu.frontend.control_flow.loop import lower_loop
from tflgpu.frontend.control_flow.parted_loop import LowerParts, lower_parted_loop
from tflgpu.frontend.control_flow.pieces import Call
from tflgpu.frontend.control_flow.unroll import unroll
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.model.model import Model, Operator
from tflgpu.model.tensor_info import TensorIndex

CONTROL_FLOW = ("WHILE", "IF", COMPOSITE)


def lower_call(
    operator: Operator,
    graph: GraphBuilder,
    model: Model,
    callee: Callable[[int], Callee],
    separate: Separate,
    lower_parts: LowerParts | None,
    wanted: Collection[TensorIndex],
    apart: dict[int, Call] | None,
) -> Iterator[str]:
    """Do what an operator of ``CONTROL_FLOW`` does; yields why the device cannot.

    callee: of a subgraph by its number, in ``graph``. lower_parts: lowers a subgraph that has loops and branches of
    its own; None if these are for the CPU. wanted: tensors of the file that something reads, or that are
    outputs. apart: gets the pieces of an operator that cannot become a part of ``graph``; None if there may be none.
    Raises ModelError for a subgraph that is not there.
    """
    found: Call | str | None
    if operator.code == COMPOSITE:
        found = inline(operator, graph, callee)
    elif operator.code == "IF":
        found = lower_branch(replace(operator, index=graph.source_of(operator)), graph, model, callee, separate)
    else:
        found = next(unroll(operator, graph, model, callee), None)
        if found is not None and apart is not None:
            state = [value for t in operator.inputs if (value := graph.read(t)) is not None]
            known_as = replace(operator, index=graph.source_of(operator))
            found = lower_loop(known_as, state, model, separate, wanted)
            if isinstance(found, str) and lower_parts is not None and _has_calls(operator, model):
                parted = lower_parted_loop(known_as, state, model, separate, lower_parts)
                found = found if isinstance(parted, str) else parted
    if isinstance(found, str):
        yield found
    elif found is not None and apart is None:
        yield "which branch it takes is known only at run time"
    elif found is not None and apart is not None:
        apart[operator.index] = found
        for index, shape in zip(operator.outputs, found.shapes, strict=True):
            graph.bind(index, graph.tensor(replace(graph.subgraph.tensors[index], shape=shape)))


def _has_calls(operator: Operator, model: Model) -> bool:
    """Whether the body of a WHILE calls subgraphs."""
    number = operator.options.get("body_subgraph_index", 0)
    return 0 < number < len(model.subgraphs) and any(o.code in CONTROL_FLOW for o in model.subgraphs[number].operators)
