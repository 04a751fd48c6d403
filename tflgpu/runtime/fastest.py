"""Measures which of several candidates is the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TypeVar

import numpy as np

Candidate = TypeVar("Candidate")

# Each candidate has a turn in each round: runs in a row, of which the first half fill the caches and wake other cores.
ROUNDS, IN_A_ROW = 3, 10

# Seconds after which no round begins. A turn ends when its part of them is over.
ENOUGH_SECONDS = 0.2


def fastest(
    candidates: Sequence[Candidate], run: Callable[[Candidate], object], now: Callable[[], float] = perf_counter
) -> Candidate:
    """Return the candidate whose runs take the least time: the median of the second half of each of its turns.

    Args:
        candidates: One or more. A single one does not run.
        run: Runs a candidate, and waits for it.
        now: A clock in seconds.
    """
    if len(candidates) == 1:
        return candidates[0]
    for candidate in candidates:
        run(candidate)
    times: list[list[float]] = [[] for _ in candidates]
    end = now() + ENOUGH_SECONDS
    for _ in range(ROUNDS):
        for candidate, seconds in zip(candidates, times, strict=True):
            turn = _turn(partial(run, candidate), ENOUGH_SECONDS / (ROUNDS * len(candidates)), now)
            seconds += turn[len(turn) // 2 :]
        if now() >= end:
            break
    return candidates[int(np.argmin([np.median(seconds) for seconds in times]))]


def _turn(run: Callable[[], object], length: float, now: Callable[[], float]) -> list[float]:
    """Return the seconds of each of the runs in a row; at least one, and no further one after ``length`` seconds."""
    times: list[float] = []
    begun = now()
    while not times or (len(times) < IN_A_ROW and now() - begun < length):
        start = now()
        run()
        times.append(now() - start)
    return times
