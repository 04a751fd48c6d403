"""Which subgraphs composites and operators for control flow call. Nothing may call itself: LiteRT has no recursion."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from tflgpu.errors import ModelError
from tflgpu.model.model import Operator, Subgraph

# The deepest nesting of calls of subgraphs. LiteRT recurses through them, on a stack of 8 MiB.
MAX_DEPTH = 64


def called_by(operator: Operator) -> tuple[int, ...]:
    """Return the numbers of the subgraphs that an operator calls."""
    values = [value for name, value in operator.options.items() if "subgraph" in name]
    return tuple(n for value in values for n in (value if isinstance(value, tuple) else (value,)))


def _check_results(where: str, caller: Subgraph, operator: Operator, number: int, branch: Subgraph) -> None:
    """Raise ModelError if a branch has results of other types than the operator."""
    wanted = [caller.tensors[t].dtype for t in operator.outputs]
    found = [branch.tensors[t].dtype for t in branch.outputs]
    if wanted != found:
        raise ModelError(f"{where} has results of types {wanted}, and subgraph {number} gives {found}")


def _check_counts(where: str, operator: Operator, number: int, called: Subgraph) -> None:
    """Raise ModelError if a decomposition takes or gives another number of values than its operator."""
    wanted, found = (len(operator.inputs), len(operator.outputs)), (len(called.inputs), len(called.outputs))
    if wanted != found:
        raise ModelError(
            f"{where} has {wanted[0]} inputs and {wanted[1]} outputs, and its decomposition, subgraph {number}, has "
            f"{found[0]} and {found[1]}"
        )


def check_calls(subgraphs: Sequence[Subgraph]) -> None:
    """Accept subgraphs that call only others of the file, and none that leads back to itself.

    Args:
        subgraphs: All of the file.

    Raises:
        ModelError: A call is wrong, or calls are too deep.
    """
    callers: dict[tuple[int, int], str] = {}
    for index, subgraph in enumerate(subgraphs):
        for operator in subgraph.operators:
            where = f"subgraph {index}, operator {operator.index} {operator.code}"
            for number in called_by(operator):
                if not 0 <= number < len(subgraphs):
                    raise ModelError(f"{where} calls subgraph {number}; the model has {len(subgraphs)}")
                callers.setdefault((index, number), where)
                if operator.code == "IF":
                    _check_results(where, subgraph, operator, number, subgraphs[number])
                if operator.code == "STABLEHLO_COMPOSITE":
                    _check_counts(where, operator, number, subgraphs[number])
    called: dict[int, set[int]] = {}
    for caller, number in callers:
        called.setdefault(caller, set()).add(number)
    try:
        order = list(TopologicalSorter(called).static_order())  # the called come first
    except CycleError as error:
        number, caller = error.args[1][:2]
        raise ModelError(f"{callers[caller, number]} calls subgraph {number}, which leads back to itself") from None
    depths: dict[int, int] = {}
    for index in order:
        depths[index] = 1 + max((depths[n] for n in called.get(index, ())), default=0)
        if depths[index] > MAX_DEPTH:
            raise ModelError(f"subgraph {index} leads to calls of subgraphs that are {depths[index]} deep or deeper")
