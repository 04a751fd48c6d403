"""Whether what became of a mutant is as it should be."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.conformance.judge import compare
from tests.safety.mutants.attempt import Answer, Job, Opinion, Question, ask_litert, compile_and_run, open_device
from tests.safety.mutants.mutation import Mutant
from tests.safety.mutants.tolerances import allowed_error, known_difference
from tests.safety.sandbox import Fate, Sandbox
from tflgpu.model.model import Model
from tflgpu.model.reader import read_model

SECONDS = 60.0  # a mutant takes a fraction of one
REFUSAL = "the model cannot take these inputs; LiteRT says"  # a ValueError of a run
FAULTS = ("InternalError", "BuildError")  # public, but no answer to a file

Outcome = Literal["refused", "right", "unjudged", "fault"]


@dataclass(frozen=True)
class Verdict:
    """cause: the same text for faults that may have the same cause; of a refusal the kind of error."""

    outcome: Outcome
    cause: str = ""
    details: str = ""


class Court:
    """Two processes, one for tflgpu and one for its judge."""

    def __init__(self) -> None:
        self._tflgpu = Sandbox(compile_and_run, seconds=SECONDS, prepare=open_device)
        self._litert = Sandbox(ask_litert, seconds=SECONDS)

    def judge(self, mutant: Mutant, fallback: Literal["auto", "forbid"] = "auto") -> Verdict:
        fate = self._tflgpu.run(Job(mutant.data, mutant.original.inputs, fallback))
        if fate.kind == "foreign exception" and REFUSAL in fate.text:
            return Verdict("refused", "LiteRT refuses the inputs", fate.text)
        if fate.kind == "public error" and not fate.text.startswith(FAULTS):
            return Verdict("refused", fate.text.partition(":")[0], fate.text)
        if fate.kind == "memory" and "ai_edge_litert" in fate.details.rpartition("File ")[2]:
            return Verdict("refused", "MemoryError of LiteRT")  # it runs a part whose result is as large for anyone
        if fate.kind != "answer":
            return Verdict("fault", cause(fate), f"{fate.text}\n{fate.details}")
        answers: list[Answer] = fate.value
        if not answers:
            return Verdict("unjudged", "inputs that are too large to run")
        opinions = self._litert.run(Question(mutant.data, [answer.inputs for answer in answers]))
        if opinions.kind != "answer":
            return Verdict("unjudged", f"LiteRT: {opinions.kind}", opinions.text)
        return _compared(mutant, answers, opinions.value)

    def close(self) -> None:
        self._tflgpu.close()
        self._litert.close()

    def __enter__(self) -> Court:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cause(fate: Fate) -> str:
    """The place in tflgpu where an exception was raised, or where a process was that died or hung."""
    first, *_ = fate.details.partition("\n\nThe above exception")
    places = [line.strip() for line in first.splitlines() if re.match(r' *File ".*/tflgpu/', line)]
    if fate.kind in ("foreign exception", "public error"):
        name = first.strip().splitlines()[-1].partition(":")[0]
        return f"{name} at {_place(places[-1:])}"
    return f"{fate.kind}: {fate.text} at {_place(places[:1])}"


def _place(lines: Sequence[str]) -> str:
    """Without the line's number, which the next edit changes."""
    return "".join(re.sub(r'File ".*/(tflgpu/[^"]*)", line \d+,? in (\S+).*', r"\1 in \2", line) for line in lines)


def _compared(mutant: Mutant, answers: Sequence[Answer], opinions: dict[str, Opinion | str]) -> Verdict:
    judges = {name: opinion for name, opinion in opinions.items() if isinstance(opinion, Opinion)}
    if not judges:
        return Verdict("unjudged", "LiteRT refuses it", "; ".join(map(str, opinions.values())))
    if any(array.dtype.kind not in "biuf" for answer in answers for array in answer.outputs.values()):
        return Verdict("unjudged", "no real numbers")
    model = read_model(mutant.data)
    faults = {name: _fault(model, answers, opinion) for name, opinion in judges.items()}
    if None in faults.values():
        return Verdict("right")
    first, *others = judges.values()
    largest = max(opinion.largest for opinion in judges.values())
    if reason := mutant.original.litert_differs or known_difference(mutant.data, model, largest):
        return Verdict("unjudged", reason, str(faults))
    if any(_fault(model, _as_answers(first), other) for other in others):
        return Verdict("unjudged", "LiteRT's two sets of kernels differ", str(faults))
    codes = {operator.code for graph in model.subgraphs for operator in graph.operators}
    return Verdict("fault", f"wrong: {', '.join(sorted(codes))}", str(faults))


def _as_answers(opinion: Opinion) -> list[Answer]:
    return [Answer({}, outputs) for outputs in opinion.outputs]


def _fault(model: Model, answers: Sequence[Answer], opinion: Opinion) -> str | None:
    for run, (answer, wanted) in enumerate(zip(answers, opinion.outputs, strict=True)):
        given = answer.outputs
        if not wanted.keys() <= given.keys():  # LiteRT names only those of signatures, and some have no name there
            if len(given) != len(wanted):
                return f"{len(given)} outputs, not {len(wanted)}"
            given = dict(zip(wanted, given.values(), strict=True))
        for name, expected in wanted.items():
            if fault := compare(given[name], expected, allowed_error(model, expected, opinion.largest)):
                return f"run {run}, output {name}: {fault}"
    return None
