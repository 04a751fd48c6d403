"""Cases in processes of their own: one that crashes or hangs costs that case, not the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tests.conformance.cases import Entry, load
from tests.conformance.judge import Precision
from tests.conformance.outcome import Outcome, run_case
from tests.safety import sandbox
from tests.safety.sandbox import Fate, Sandbox

Job = tuple[Entry, Precision]
Runner = Callable[[Entry, Precision, str], Outcome]

CASE_SECONDS = 60.0  # a case takes a fraction of one; this is for drivers that never come back


def run_entry(entry: Entry, precision: Precision, device: str) -> Outcome:
    return run_case(load(entry), precision, device)


def worker(device: str, limit: float = CASE_SECONDS, runner: Runner = run_entry) -> Sandbox[Job]:
    """A process for cases. ``runner`` is what it does with one: a function that a new process can import."""
    return Sandbox(partial(_run, runner, device), seconds=limit, memory=None)


def outcome_of(fate: Fate) -> Outcome:
    if fate.kind == "answer":
        outcome: Outcome = fate.value
        return outcome
    return Outcome("error", fate.text, fate.seconds)


def run_all(jobs: Sequence[Job], device: str, processes: int) -> Iterator[Outcome]:
    """The outcome of each job, in order, as soon as it is known."""
    yield from map(outcome_of, sandbox.run_all(jobs, partial(worker, device), processes))


def _run(runner: Runner, device: str, job: Job) -> Outcome:
    return runner(*job, device)
