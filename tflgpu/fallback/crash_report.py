"""Report of LiteRT's first runs in the guarded process, and of the operator with which it crashed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from tflgpu.errors import UnsupportedError
from tflgpu.fallback.guarded_process import CrashedError, GuardedProcess, Task
from tflgpu.fallback.litert_interpreter import Array
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.fallback.submodel import Submodel

# Operators that can repeat others without end.
LOOPS = frozenset(("WHILE", "STABLEHLO_WHILE", "IF", "CALL", "CALL_ONCE"))

DOING = {"shapes": "preparing", "prepare": "preparing", "run": "running"}


def ask_guarded(process: GuardedProcess, task: Task, submodel: Submodel, inputs: Sequence[Array] = ()) -> Any:
    """Let LiteRT do a task with a sub-model in a guarded process.

    Args:
        process: The guarded process.
        task: What to do.
        submodel: The operators.
        inputs: For a run, in the order of the sub-model's inputs.

    Returns:
        The result of :meth:`GuardedProcess.ask`.

    Raises:
        UnsupportedError: It crashes or takes too long; the error names the operator.
        RefusedError: LiteRT refuses.
    """
    try:
        return process.ask(task, submodel.model, inputs, is_open=submodel.is_open, place=submodel.place)
    except CrashedError as crash:
        culprits = _loops(submodel) if crash.timed_out else _crashing(process, task, submodel, inputs)
        raise UnsupportedError((_sentence(task, culprits, crash),)) from crash


def _sentence(task: Task, operators: Sequence[tuple[int, str]], crash: CrashedError) -> str:
    """Return what LiteRT was doing with which operators, and how its process ended."""
    names = ", ".join(f"{index} {code}" for index, code in operators)
    what = f"operator{'s' if len(operators) > 1 else ''} {names}: {DOING[task]} it on the CPU {crash}"
    return what + (
        "; Options.cpu_part.trial_timeout gives it longer" if crash.timed_out else " in LiteRT's interpreter"
    )


def _loops(submodel: Submodel) -> Sequence[tuple[int, str]]:
    """Return the operators that can run without end; all, if there is none."""
    return [o for o in submodel.operators if o[1] in LOOPS] or submodel.operators


def _crashing(
    process: GuardedProcess, task: Task, submodel: Submodel, inputs: Sequence[Array]
) -> Sequence[tuple[int, str]]:
    """Return the operator that the sub-model crashes with and not without; all, if it does not crash again."""
    if submodel.entry is not None:
        return submodel.operators

    def crashes(count: int) -> bool:
        try:
            process.ask(task, _beginning(submodel.model, count), inputs, is_open=submodel.is_open)
        except CrashedError:
            return True
        except ValueError:  # refused
            return False
        return False

    operators = submodel.operators
    counts = range(1, len(operators))
    found = bisect_left(counts, True, key=crashes)
    if len(operators) > 1 and found == len(counts) and not crashes(len(operators)):
        return operators
    return operators[found : found + 1]


def _beginning(model: bytes, count: int) -> bytes:
    """Return the model with the first ``count`` operators of its main subgraph alone, whose last results are its
    outputs."""
    file = unpacked(model)
    graph = file.subgraphs[0]
    if count < len(graph.operators):
        graph.operators = graph.operators[:count]
        graph.outputs = list(graph.operators[-1].outputs)
    return packed(file)
