"""One case through tflgpu, and what came of it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Literal

import tflgpu
from tests.conformance.cases import Case
from tests.conformance.judge import Precision, judge
from tests.conformance.truth import Errors, errors
from tflgpu.errors import UnsupportedError
from tflgpu.options import Options

Verdict = Literal["pass", "unsupported", "wrong", "error"]


@dataclass(frozen=True)
class Outcome:
    """``reason`` is empty for a pass, and has a line for each obstacle of an unsupported case.

    Seconds are those of compiling and running. ``errors`` of a wrong answer are known where double precision is.
    """

    verdict: Verdict
    reason: str
    seconds: float
    errors: Errors | None = None


def run_case(case: Case, precision: Precision, device: str) -> Outcome:
    """Compile the case's model, run it, judge the outputs. Whatever is raised becomes part of the outcome."""
    begin = time.perf_counter()
    verdict, reason, found = _run(case, precision, device)
    return Outcome(verdict, reason, time.perf_counter() - begin, found)


def _run(case: Case, precision: Precision, device: str) -> tuple[Verdict, str, Errors | None]:
    try:
        options = Options(precision=precision, device=device, fallback="forbid", cache="off")
        with tflgpu.compile(case.model, options) as compiled:
            outputs = list(compiled.run(case.inputs).values())
        fault = judge(case, outputs, precision)
    except UnsupportedError as error:
        return "unsupported", "\n".join(sorted({_anywhere(reason) for reason in error.reasons})), None
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}", None
    return ("wrong", fault, errors(case, outputs)) if fault else ("pass", "", None)


def _anywhere(reason: str) -> str:
    """A reason without the operator's place in this one model, so that equal reasons are equal texts."""
    return re.sub(r"^operator \d+ ", "", reason)
