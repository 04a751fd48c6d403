"""Measures which of several candidates is the fastest: once, or again and again while a program runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np

Candidate = TypeVar("Candidate")

ROUNDS = 9

ENOUGH_SECONDS = 0.2

# Runs of a candidate in a row, of which the first ones fill the caches and wake other cores, and the least and the most
# runs between two comparisons.
IN_A_ROW, TO_WARM_UP = 10, 5
LEAST_INTERVAL, MOST_INTERVAL = 1 << 6, 1 << 13

# Seconds between two runs of a comparison after which it begins anew, and how often it does so at most: the first runs
# after a pause find other caches and slower cores.
PAUSE, MOST_PAUSES = 1e-4, 4


def fastest(
    candidates: Sequence[Candidate], run: Callable[[Candidate], object], now: Callable[[], float] = perf_counter
) -> Candidate:
    """The candidate whose runs take the least time: medians of alternating rounds, after one run of each to warm up.

    A single one does not run. now: a clock in seconds. There are at most ``ROUNDS``; no round begins after
    ``ENOUGH_SECONDS``.
    """
    if len(candidates) == 1:
        return candidates[0]
    for candidate in candidates:
        run(candidate)
    times: list[list[float]] = [[] for _ in candidates]
    end = now() + ENOUGH_SECONDS
    for _ in range(ROUNDS):
        for candidate, seconds in zip(candidates, times, strict=True):
            start = now()
            run(candidate)
            seconds.append(now() - start)
        if now() >= end:
            break
    return candidates[int(np.argmin([np.median(seconds) for seconds in times]))]


class OnlineTuner(Generic[Candidate]):
    """Which of several candidates is the fastest, measured again from time to time (online autotuning).

    best: the one to take for the next ``left`` runs; then come those of a comparison. Each candidate has several runs
    in a row there, because what it finds in caches is what it left there.
    """

    def __init__(self, candidates: Sequence[Candidate], best: Candidate) -> None:
        self.best = best
        self.left = self._period = LEAST_INTERVAL
        self._candidates = candidates
        self._times: list[float] = []
        self._ended, self._paused = 0.0, 0  # the last run of this comparison; how often it has begun anew

    def run(self, run: Callable[[Candidate], object], now: Callable[[], float] = perf_counter) -> None:
        """One run of a comparison."""
        start = now()
        if self._times and start - self._ended > PAUSE and self._paused < MOST_PAUSES:
            self._paused += 1
            self._times = []
        run(self._candidates[len(self._times) // IN_A_ROW])
        self._ended = now()
        self._times.append(self._ended - start)
        if len(self._times) == IN_A_ROW * len(self._candidates):
            warm = np.reshape(self._times, (-1, IN_A_ROW))[:, TO_WARM_UP:]
            self.best = self._candidates[int(np.argmin(np.median(warm, axis=1)))]
            self.left = self._period = min(2 * self._period, MOST_INTERVAL)
            self._times, self._paused = [], 0
