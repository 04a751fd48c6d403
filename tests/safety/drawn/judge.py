"""What becomes of drawn networks: tflgpu's answer beside that of numpy in double, and of LiteRT's sets of kernels.

An answer is wrong if it is further from numpy's than the tolerance, and LiteRT's is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tests.ops.case import Case
from tests.ops.tolerance import check
from tests.safety.drawn.jobs import Job, cause_of, run
from tests.safety.drawn.networks import Network
from tests.safety.mutants.attempt import Opinion, Question, ask_litert
from tests.safety.sandbox import Sandbox

Array = NDArray[Any]

SECONDS = 60.0

Outcome = Literal["right", "refused", "litert differs", "wrong", "fault"]


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    cause: str = ""


class Judge:
    """Two processes: one for tflgpu, and one for LiteRT, which is asked where the answer is not numpy's."""

    def __init__(self, device: str = "Intel") -> None:
        self._device = device
        self._tflgpu = Sandbox(run, seconds=SECONDS, memory=None)
        self._litert = Sandbox(ask_litert, seconds=SECONDS)

    def judge(self, network: Network) -> Verdict:
        case, setting = network.case, network.setting
        fate = self._tflgpu.run(Job(case.model, case.inputs, setting, self._device))
        if fate.kind == "public error" and not fate.text.startswith(("InternalError", "BuildError")):
            return Verdict("refused", fate.text)
        if fate.kind != "answer":
            return Verdict("fault", cause_of(fate))
        found = (difference(case, outputs, setting.precision) for outputs in fate.value)
        wrong = next((text for text in found if text is not None), None)
        if wrong is None:
            return Verdict("right")
        return Verdict("litert differs" if self.litert_differs(case) else "wrong", wrong)

    def litert_differs(self, case: Case) -> bool:
        """Whether some set of LiteRT's kernels gives another answer than numpy, too, in single precision."""
        names = [f"{i}" for i in range(len(case.inputs))]
        question = Question(case.model, [dict(zip(names, case.inputs, strict=True))])
        fate = self._litert.run(question)
        opinions = fate.value.values() if fate.kind == "answer" else ()
        answers = [[*o.outputs[0].values()] for o in opinions if isinstance(o, Opinion)]
        return any(difference(case, answer, "fp32") is not None for answer in answers)

    def close(self) -> None:
        self._tflgpu.close()
        self._litert.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def difference(case: Case, outputs: Sequence[Array], precision: str) -> str | None:
    """Where the outputs are further from numpy's than the tolerance; None if they are not."""
    try:
        assert len(outputs) == len(case.expected), f"{len(outputs)} outputs of {len(case.expected)}"
        for got, expected in zip(outputs, case.expected, strict=True):
            check(np.asarray(got), expected, case.tolerance, precision)
    except AssertionError as difference:
        return str(difference)
    return None
