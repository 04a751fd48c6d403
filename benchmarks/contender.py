"""Something that runs a case, and the clock by which it is timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tflgpu.cli.timing import seconds_of

# By the device's clock; from launching to the end, all data being on the device; from host arrays to host arrays.
Metric = Literal["device", "launch", "host"]


class Skipped(Exception):
    """Why a contender cannot run."""


@dataclass(frozen=True)
class Contender:
    """sample: seconds of at most so many runs, one after another, without those that warm up.

    error: of its outputs, against LiteRT's CPU interpreter; None for networks with weights of their own.
    work: bytes and multiply-adds of each kernel in one run, where they are known.
    """

    name: str
    metric: Metric
    sample: Callable[[int], list[float]]
    error: Callable[[], float] | None = None
    work: Callable[[], list[tuple[int, int]]] | None = None


# A turn ends after so many seconds, if it has not had all its runs by then, but not before it has had some.
TURN = 0.1
FEWEST_RUNS = 4


def timed(call: Callable[[], object]) -> Callable[[int], list[float]]:
    """Samples of a call's wall time. The first half of each turn warms up: a GPU takes its time to change contexts."""

    def sample(runs: int) -> list[float]:
        times: list[float] = []
        end = time.perf_counter() + TURN
        while len(times) < FEWEST_RUNS or (len(times) < runs and time.perf_counter() < end):
            times.append(seconds_of(call))
        return times[len(times) // 2 :]

    return sample
