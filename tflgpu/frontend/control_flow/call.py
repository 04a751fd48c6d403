"""Operators that call subgraphs: into the graph that is being lowered, or as pieces apart from it.

A composite has a name, such as ``odml.rms_norm``, and a subgraph of usual operators, its decomposition. The passes find
norms and attention in these operators, however a model spells them, so that no name has to be known.

Composites always become a part of the graph, WHILE and IF where constants decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from tflgpu.frontend.control_flow.callee import Callee, Separate, subgraphs_of
from tflgpu.frontend.control_flow.loop import LowerParts, lower_loop, lower_parted_loop, unroll
from tflgpu.frontend.control_flow.pieces import Branch, Call, LoweredPiece, piece_of, place_inputs
from tflgpu.frontend.graph_builder import GraphBuilder
from tflgpu.graph.ir import Tensor
from tflgpu.model.model import FileTensor, Model, Operator
from tflgpu.model.quantization import is_quantized
from tflgpu.model.tensor_info import TensorIndex

COMPOSITE = "STABLEHLO_COMPOSITE"


def inline(
    operator: Operator, inputs: Sequence[Tensor | None], graph: GraphBuilder, callee: Callable[[int], Callee]
) -> list[Tensor] | str:
    """Add the decomposition of a composite to a graph.

    Args:
        operator: The composite.
        inputs: Those of the operator; None for absent ones.
        graph: Gets the nodes.
        callee: Gives a subgraph by its number, in the same graph.

    Returns:
        The results; or why that is not possible.
    """
    number = operator.options.get("decomposition_subgraph_index")
    if number is None:
        return "it names no decomposition"
    given = [t for t in inputs if t is not None]
    if len(given) < len(inputs):
        return "it lacks an input that its decomposition takes"
    decomposition = callee(number)
    inner, outer = decomposition.subgraph, graph.subgraph.tensors
    pairs = zip((*operator.inputs, *operator.outputs), (*inner.inputs, *inner.outputs), strict=True)
    for own, called in pairs:
        if not _are_alike(outer[own], inner.tensors[called]):
            return f"{outer[own].name!r} and {inner.tensors[called].name!r} of its decomposition hold different types"
    decomposition.graph.caller = operator.index
    results = decomposition.call(given)
    return f"in its decomposition, {results}" if isinstance(results, str) else results


def _are_alike(own: FileTensor, called: FileTensor) -> bool:
    """Whether both tensors hold the same numbers in the same way, so that a value may go from one to the other."""
    if is_quantized(own) or is_quantized(called):
        return own.dtype == called.dtype and own.quantization == called.quantization
    return own.dtype == called.dtype


def lower_branch(
    operator: Operator, values: Sequence[Tensor], model: Model, callee: Callable[[int], Callee], separate: Separate
) -> Branch | list[Tensor] | str:
    """Lower an IF.

    Args:
        operator: The IF.
        values: Those that it takes.
        model: Has the branches.
        callee: Gives a subgraph by its number, in the graph of the operator.
        separate: Gives a subgraph in a graph of its own.

    Returns:
        Both branches; the results of the one that is taken, if that is known; or why the device cannot run it.

    Raises:
        ModelError: A subgraph is not there.
    """
    outputs = len(operator.outputs)
    numbers = subgraphs_of(operator, model, ("then", "else"), len(values) - 1, (outputs, outputs))
    if isinstance(numbers, str):
        return numbers
    decision, *arguments = values
    if decision.size != 1 or decision.dtype != "bool":
        return f"its condition is {decision.dtype} of shape {list(decision.shape)}; one boolean was expected"
    if decision.data is not None:
        branch = callee(numbers[0 if decision.data.reshape(-1)[0] else 1])
        branch.graph.caller = operator.index
        taken = branch.call(arguments)
        return f"in the branch that it takes, {taken}" if isinstance(taken, str) else taken
    branches: list[tuple[LoweredPiece, list[Tensor]]] = []
    for name, number in zip(("then", "else"), numbers, strict=True):
        found = _lower(operator, separate(model.subgraphs[number], None), arguments)
        if isinstance(found, str):
            return f"in its {name} branch, {found}"
        branches.append(found)
    (then, results), (otherwise, others) = branches
    for position, (a, b) in enumerate(zip(results, others, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return (
                f"its branches give {a.dtype} of shape {list(a.shape)} and {b.dtype} of shape {list(b.shape)} for "
                f"result {position}"
            )
    return Branch(operator.inputs[0], then, otherwise, tuple(t.shape for t in results))


def _lower(operator: Operator, branch: Callee, arguments: Sequence[Tensor]) -> tuple[LoweredPiece, list[Tensor]] | str:
    branch.graph.caller = operator.index
    placed = place_inputs(branch, arguments)
    results = branch.call(placed)
    if isinstance(results, str):
        return results
    inputs = {t.id: operator.inputs[1 + p] for p, t in enumerate(placed) if not t.is_constant}
    return piece_of(operator, branch, inputs, results, operator.outputs), results


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
) -> str | None:
    """Do what an operator of ``CONTROL_FLOW`` does.

    Args:
        operator: The operator.
        graph: Gets the nodes.
        model: Has the subgraphs.
        callee: Gives a subgraph by its number, in ``graph``.
        separate: Gives a subgraph in a graph of its own.
        lower_parts: Lowers a subgraph that has loops and branches of its own; None if these are for the CPU.
        wanted: Tensors of the file that something reads, or that are outputs.
        apart: Gets the pieces of an operator that cannot become a part of ``graph``; None if there may be none.

    Returns:
        Why the device cannot do it; None if it can.

    Raises:
        ModelError: A subgraph is not there.
    """
    found: Call | list[Tensor] | str
    written, known_as = len(graph.nodes), replace(operator, index=graph.source_of(operator))
    inputs = [graph.read(t) for t in operator.inputs]
    values = [value for value in inputs if value is not None]
    if operator.code == COMPOSITE:
        found = inline(known_as, inputs, graph, callee)
    elif operator.code == "IF":
        found = lower_branch(known_as, values, model, callee, separate)
    else:
        found = unroll(known_as, values, model, callee)
        if isinstance(found, str) and apart is not None:
            found = lower_loop(known_as, values, model, separate, wanted)
            if isinstance(found, str) and lower_parts is not None and _has_calls(operator, model):
                parted = lower_parted_loop(known_as, values, model, separate, lower_parts)
                found = found if isinstance(parted, str) else parted
    if isinstance(found, list):
        for index, value in zip(operator.outputs, found, strict=True):
            if not value.is_constant:  # it may be an input of the model, or another output
                copy = replace(value, id=next(graph.ids), name=graph.subgraph.tensors[index].name)
                value = graph.add_map(value, copy, operator=known_as.index)
            graph.bind(index, value)
        return None
    del graph.nodes[written:]
    if isinstance(found, str):
        return found
    if apart is None:
        return "which branch it takes is known only at run time"
    apart[operator.index] = found
    for index, shape in zip(operator.outputs, found.shapes, strict=True):
        graph.bind(index, graph.tensor(replace(graph.subgraph.tensors[index], shape=shape)))
    return None


def _has_calls(operator: Operator, model: Model) -> bool:
    """Whether the body of a WHILE calls subgraphs."""
    number = operator.options.get("body_subgraph_index", 0)
    return 0 < number < len(model.subgraphs) and any(o.code in CONTROL_FLOW for o in model.subgraphs[number].operators)
