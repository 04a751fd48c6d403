"""A contender runs a case; its metric is the clock that times it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tflgpu.cli.measurement import seconds_of

# By the device's clock; from launch to end with all data on the device; from host arrays to host arrays.
Metric = Literal["device", "launch", "host"]


class Skipped(Exception):
    """A contender cannot run; the text says why."""


@dataclass(frozen=True)
class Contender:
    """sample: takes a number of runs; returns the seconds of at most so many, without those that warm up.

    error: largest error against LiteRT's CPU interpreter; None for networks with other weights.
    work: bytes and multiply-adds of each kernel in one run; None if unknown.
    """

    name: str
    metric: Metric
    sample: Callable[[int], list[float]]
    error: Callable[[], float] | None = None
    work: Callable[[], list[tuple[int, int]]] | None = None


# A turn ends after so many seconds even without all its runs, but not before the fewest runs.
TURN = 0.1
FEWEST_RUNS = 4

STREAM = 16  # runs of a stream for each run of a call


def timed(call: Callable[[], object]) -> Callable[[int], list[float]]:
    """Samples of a call's wall time. The first half of each turn warms up: a GPU is slow to change contexts."""

    def sample(runs: int) -> list[float]:
        times: list[float] = []
        end = time.perf_counter() + TURN
        while len(times) < FEWEST_RUNS or (len(times) < runs and time.perf_counter() < end):
            times.append(seconds_of(call))
        return times[len(times) // 2 :]

    return sample


def streamed(start: Callable[[], object], finish: Callable[[], object]) -> Callable[[int], list[float]]:
    """Samples, one a turn, of the time from one run to the next; ``finish`` waits for those that ``start`` began."""

    def sample(runs: int) -> list[float]:
        for _ in range(FEWEST_RUNS):
            start()
        finish()
        begin, number = time.perf_counter(), 0
        while number < FEWEST_RUNS or (number < STREAM * runs and time.perf_counter() < begin + TURN):
            start()
            number += 1
        finish()
        return [(time.perf_counter() - begin) / number]

    return sample
