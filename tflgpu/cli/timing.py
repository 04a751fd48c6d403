"""Wall-clock latency of several engines, measured side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

# Each engine's runs are dealt out to so many rounds, so that a machine that slows down or speeds up does so for all.
ROUNDS = 10


@dataclass(frozen=True)
class Latency:
    """Seconds of one run, over ``runs`` runs."""

    runs: int
    median: float
    p10: float
    p90: float


def seconds_of(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(engines: Mapping[str, Callable[[], object]], runs: int, min_seconds: float) -> dict[str, Latency]:
    """Latency of every engine by name, each run at least ``runs`` times and for ``min_seconds``.

    The engines take turns. The first run of a turn is a warm-up and not counted: it pays for the caches and the
    threads that the other engine has left in its own favour.
    """
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(ROUNDS):
        for name, call in engines.items():
            call()
            times[name] += _one_round(call, ceil(runs / ROUNDS), min_seconds / ROUNDS)
    return {name: _latency(own) for name, own in times.items()}


def _one_round(call: Callable[[], object], runs: int, min_seconds: float) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + min_seconds
    while len(times) < runs or time.perf_counter() < end:
        times.append(seconds_of(call))
    return times


def _latency(times: list[float]) -> Latency:
    p10, median, p90 = np.percentile(times, [10, 50, 90])
    return Latency(len(times), float(median), float(p10), float(p90))
