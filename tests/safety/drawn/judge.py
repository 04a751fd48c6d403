"""Judges drawn networks: tflgpu's answer beside that of numpy in double, and of LiteRT's sets of kernels.

An answer is wrong if it is further from numpy's than the tolerance, and LiteRT's is not. Answers of quantized networks
are right if they are as near to those of LiteRT's reference kernels, too. Of integers LiteRT's answers alone count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tests.ops.case import Case
from tests.ops.tolerance import HALF_ROUNDING, check
from tests.safety.drawn.jobs import Job, cause_of, run
from tests.safety.drawn.networks import Network
from tests.safety.mutants.attempt import Opinion, Question, ask_litert
from tests.safety.sandbox import Sandbox
from tests.support.unoptimized import compile_without_optimization

Array = NDArray[Any]

SECONDS = 60.0

Outcome = Literal["right", "refused", "litert differs", "wrong", "fault"]


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    cause: str = ""


class Judge:
    """Two processes: one for tflgpu, and one for LiteRT, which is asked where the answer is not numpy's."""

    def __init__(self, device: str = "Intel", seconds: float = SECONDS, *, optimized: bool = True) -> None:
        """seconds: for a network. optimized: whether the device's compiler optimizes."""
        self._device = device
        prepare = None if optimized else compile_without_optimization
        self._tflgpu = Sandbox(run, seconds=seconds, memory=None, prepare=prepare)
        self._litert = Sandbox(ask_litert, seconds=SECONDS)

    def judge(self, network: Network) -> Verdict:
        case, setting = network.case, network.setting
        if network.chains:
            case = self.as_litert(case)
        fate = self._tflgpu.run(Job(case.model, case.inputs, setting, self._device))
        if fate.kind == "public error" and not fate.text.startswith(("InternalError", "BuildError")):
            return Verdict("refused", fate.text)
        if fate.kind != "answer":
            return Verdict("fault", cause_of(fate))
        if (wrong := _first_difference(case, fate.value, setting.precision)) is None:
            return Verdict("right")
        if network.chains:
            return Verdict("wrong", wrong)
        answers = self._answers_of_litert(case)
        if case.bounds is not None and "reference" in answers:
            as_litert = replace(case, expected=answers["reference"])
            if _first_difference(as_litert, fate.value, setting.precision) is None:
                return Verdict("right")
        return Verdict("litert differs" if _are_different(case, answers.values()) else "wrong", wrong)

    def as_litert(self, case: Case) -> Case:
        """The case with the answers of LiteRT's reference kernels, or of numpy where they refuse."""
        answers = self._answers_of_litert(case)
        return replace(case, expected=answers["reference"]) if "reference" in answers else case

    def litert_differs(self, case: Case) -> bool:
        """Whether some set of LiteRT's kernels gives another answer than numpy, too, in single precision."""
        return _are_different(case, self._answers_of_litert(case).values())

    def _answers_of_litert(self, case: Case) -> dict[str, list[Array]]:
        """The outputs of each set of kernels that runs the model."""
        names = [f"{i}" for i in range(len(case.inputs))]
        question = Question(case.model, [dict(zip(names, case.inputs, strict=True))])
        fate = self._litert.run(question)
        opinions = fate.value.items() if fate.kind == "answer" else ()
        return {name: [*o.outputs[0].values()] for name, o in opinions if isinstance(o, Opinion)}

    def close(self) -> None:
        self._tflgpu.close()
        self._litert.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _are_different(case: Case, answers: Iterable[Sequence[Array]]) -> bool:
    return any(difference(case, answer, "fp32") is not None for answer in answers)


def _first_difference(case: Case, answers: Iterable[Sequence[Array]], precision: str) -> str | None:
    found = (difference(case, outputs, precision) for outputs in answers)
    return next((text for text in found if text is not None), None)


def difference(case: Case, outputs: Sequence[Array], precision: str) -> str | None:
    """Where the outputs are further from numpy's than the tolerance; None if they are not."""
    try:
        assert len(outputs) == len(case.expected), f"{len(outputs)} outputs of {len(case.expected)}"
        for k, (got, expected) in enumerate(zip(outputs, case.expected, strict=True)):
            bound = None if case.bounds is None else case.bounds[k]
            if bound is not None and precision == "fp16" and expected.dtype.kind == "f":
                bound = bound + HALF_ROUNDING * np.abs(expected)
            check(np.asarray(got), expected, case.tolerance, precision, bound=bound)
    except AssertionError as difference:
        return str(difference)
    return None
