"""A partition for LiteRT, tried in a process of its own; and which of its operators that did not survive."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tflgpu.errors import UnsupportedError
from tflgpu.litert.cpu_executor import Array
from tflgpu.litert.schema_objects import packed, unpacked
from tflgpu.litert.trial import DiedError, Trial

# Operators that can repeat others without end.
LOOPS = frozenset(("WHILE", "STABLEHLO_WHILE", "IF", "CALL", "CALL_ONCE"))

DOING = {"shapes": "preparing", "prepare": "preparing", "run": "running"}


@dataclass(frozen=True)
class Piece:
    """A model for LiteRT. operators: index and code in the user's file of each operator of its main subgraph.

    is_open: whether only a run can tell the shape of an input.
    """

    model: bytes
    operators: tuple[tuple[int, str], ...]
    is_open: bool = False


def try_piece(trial: Trial, task: Literal["prepare", "run"], piece: Piece, inputs: Sequence[Array] = ()) -> None:
    """Let LiteRT prepare a piece, or run it once, in the process of ``trial``.

    Raises UnsupportedError naming the operator if that crashes or takes too long, RefusedError if LiteRT refuses.
    """
    try:
        trial.ask(task, piece.model, inputs, is_open=piece.is_open)
    except DiedError as end:
        culprits = _loops(piece) if end.timed_out else _crashing(trial, task, piece, inputs)
        raise UnsupportedError((verdict(task, culprits, end),)) from end


def refused(reasons: Sequence[str], refusal: Exception) -> UnsupportedError:
    """For operators that the device cannot run for ``reasons``, and that LiteRT refuses."""
    return UnsupportedError((*reasons, f"LiteRT's interpreter refuses them: {' '.join(str(refusal).split())}"))


def verdict(task: str, operators: Sequence[tuple[int, str]], end: DiedError) -> str:
    """The sentence about operators that LiteRT does not survive."""
    names = ", ".join(f"{index} {code}" for index, code in operators)
    what = f"operator{'s' if len(operators) > 1 else ''} {names}: {DOING[task]} it on the CPU {end}"
    return what + ("; Options.cpu_part.trial_timeout gives it longer" if end.timed_out else " in LiteRT's interpreter")


def _loops(piece: Piece) -> Sequence[tuple[int, str]]:
    """The operators that can run without end; all, if there is none."""
    return [o for o in piece.operators if o[1] in LOOPS] or piece.operators


def _crashing(
    trial: Trial, task: Literal["prepare", "run"], piece: Piece, inputs: Sequence[Array]
) -> Sequence[tuple[int, str]]:
    """The operator that the piece crashes with and not without; all, if it does not crash again."""

    def crashes(count: int) -> bool:
        try:
            trial.ask(task, beginning(piece.model, count), inputs, is_open=piece.is_open)
        except DiedError:
            return True
        except ValueError:  # refused
            return False
        return False

    counts = range(1, len(piece.operators))
    found = bisect_left(counts, True, key=crashes)
    if len(piece.operators) > 1 and found == len(counts) and not crashes(len(piece.operators)):
        return piece.operators
    return piece.operators[found : found + 1]


def beginning(model: bytes, count: int) -> bytes:
    """The model with the first ``count`` operators of its main subgraph alone, whose last results are its outputs."""
    file = unpacked(model)
    graph = file.subgraphs[0]
    if count < len(graph.operators):
        graph.operators = graph.operators[:count]
        graph.outputs = list(graph.operators[-1].outputs)
    return packed(file)
