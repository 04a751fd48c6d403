"""Measures the contenders of a case in turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from statistics import median
from typing import Any, get_args

from benchmarks.contest.contender import Metric, Skipped
from benchmarks.contest.worker import Worker

RUNS = 20  # of a contender in one turn


@dataclass
class Result:
    """Times of a contender. reason: why it has none. error, work: results of the functions of Contender."""

    name: str
    metric: str
    seconds: list[float] = field(default_factory=list)
    reason: str | None = None
    error: float | None = None
    work: list[tuple[int, int]] | None = None

    @property
    def ms(self) -> float | None:
        return 1e3 * median(self.seconds) if self.seconds and self.reason is None else None


class _Entry:
    """A contender of a worker, and its result; after its first failure it is not called again."""

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker, self._number = worker, number
        self.result = Result(*worker.labels[number])

    def sample(self) -> None:
        self.result.seconds += self._ask("sample", RUNS) or []

    def finish(self) -> None:
        self.result.error, self.result.work = self._ask("error"), self._ask("work")

    def _ask(self, what: str, *arguments: object) -> Any:
        if self.result.reason is None:
            try:
                return self._worker.ask(self._number, what, *arguments)
            except Skipped as skipped:
                self.result.reason = str(skipped)
        return None


def prepare(workers: Iterable[Worker], jobs: int) -> dict[Worker, str]:
    """Start all workers, ``jobs`` at a time. Returns the reason for each that cannot run."""
    reasons: dict[Worker, str] = {}

    def start(worker: Worker) -> None:
        try:
            worker.prepare()
        except Skipped as skipped:
            reasons[worker] = str(skipped)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(start, workers))
    return reasons


def measure(workers: Sequence[Worker], failed: dict[Worker, str], rounds: int) -> list[Result]:
    """The results of all contenders of a case. They take turns by metric; every round begins with another one."""
    entries = [_Entry(worker, number) for worker in workers for number in range(len(worker.labels))]
    for metric in get_args(Metric):
        turns = [entry for entry in entries if entry.result.metric == metric]
        for _ in range(rounds):
            for entry in turns:
                entry.sample()
            turns = turns[1:] + turns[:1]
        for entry in turns:
            entry.finish()
    engines = ((import_module(w.module), failed[w]) for w in workers if w in failed)
    return [e.result for e in entries] + [Result(e.NAME, e.METRIC, reason=reason) for e, reason in engines]
