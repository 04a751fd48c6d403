"""Wall-clock latency of several engines, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

# Rounds that each engine's runs are dealt out to, so that a machine that slows down or speeds up does so for all.
ROUNDS = 10

PERCENTILES = (5, 10, 50, 90, 95, 99)


@dataclass(frozen=True)
class Latency:
    """Seconds of one run, over ``runs`` runs. std: of all runs, not an estimate from a sample."""

    runs: int
    min: float
    avg: float
    max: float
    std: float
    p5: float
    p10: float
    median: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Latency:
        """Statistics of times, in their unit."""
        spread = min(times), float(np.mean(times)), max(times), float(np.std(times))
        return cls(len(times), *spread, *map(float, np.percentile(times, PERCENTILES)))


def seconds_of(call: Callable[[], object]) -> float:
    """Return the wall time of a call in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def repeat(call: Callable[[], object], runs: int, min_seconds: float, max_seconds: float = inf) -> list[float]:
    """Seconds of each run, of the least number and time; after ``max_seconds`` only a first one begins."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < runs or time.perf_counter() - start < min_seconds:
        if times and time.perf_counter() - start >= max_seconds:
            break
        times.append(seconds_of(call))
    return times


def measure(
    engines: Mapping[str, Callable[[], object]], runs: int, min_seconds: float, max_seconds: float = inf
) -> dict[str, Latency]:
    """Latency of every engine by name, each run at least ``runs`` times and for ``min_seconds``.

    The engines take turns. The first run of a turn is a warm-up and not counted: it pays for the caches and the
    threads that the other engine has left in its own favour. An engine's own runs take ``max_seconds`` in all; two
    runs in each turn it has in any case.
    """
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(ROUNDS):
        for name, call in engines.items():
            call()
            times[name] += repeat(call, ceil(runs / ROUNDS), min_seconds / ROUNDS, max_seconds / ROUNDS)
    return {name: Latency.of(own) for name, own in times.items()}
