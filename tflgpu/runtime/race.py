"""Measures which of several ways to do the same is the fastest: once, or again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np

Rival = TypeVar("Rival")

ROUNDS = 9

ENOUGH_SECONDS = 0.2

# Runs of a rival in a row, of which the first ones fill the caches and wake other cores, and runs between two
# comparisons, at first and at most.
IN_A_ROW, TO_WARM_UP = 10, 5
SOON, SELDOM = 1 << 6, 1 << 13

# Seconds between two runs of a comparison behind which it begins anew, and how often it does so at most: the first runs
# behind a pause find other caches and slower cores, whoever's they are.
PAUSE, PATIENCE = 1e-4, 4


def fastest(rivals: Sequence[Rival], run: Callable[[Rival], object], now: Callable[[], float] = perf_counter) -> Rival:
    """The rival whose runs take the least time: medians of alternating rounds, after one run of each to warm up.

    A single one does not run. now: a clock in seconds. There are at most ``ROUNDS``; no round begins after
    ``ENOUGH_SECONDS``.
    """
    if len(rivals) == 1:
        return rivals[0]
    for rival in rivals:
        run(rival)
    times: list[list[float]] = [[] for _ in rivals]
    end = now() + ENOUGH_SECONDS
    for _ in range(ROUNDS):
        for rival, seconds in zip(rivals, times, strict=True):
            start = now()
            run(rival)
            seconds.append(now() - start)
        if now() >= end:
            break
    return rivals[int(np.argmin([np.median(seconds) for seconds in times]))]


class Contest(Generic[Rival]):
    """Which of several ways to do the same again and again is the fastest, looked at anew from time to time.

    best: the one to take for the next ``left`` runs; then come those of a comparison. Each rival has several runs in a
    row there, because what it finds in caches is what it left there.
    """

    def __init__(self, rivals: Sequence[Rival], best: Rival) -> None:
        self.best = best
        self.left = self._period = SOON
        self._rivals = rivals
        self._times: list[float] = []
        self._ended, self._paused = 0.0, 0  # the last run of this comparison; how often it has begun anew

    def run(self, run: Callable[[Rival], object], now: Callable[[], float] = perf_counter) -> None:
        """One run of a comparison."""
        start = now()
        if self._times and start - self._ended > PAUSE and self._paused < PATIENCE:
            self._paused += 1
            self._times = []
        run(self._rivals[len(self._times) // IN_A_ROW])
        self._ended = now()
        self._times.append(self._ended - start)
        if len(self._times) == IN_A_ROW * len(self._rivals):
            warm = np.reshape(self._times, (-1, IN_A_ROW))[:, TO_WARM_UP:]
            self.best = self._rivals[int(np.argmin(np.median(warm, axis=1)))]
            self.left = self._period = min(2 * self._period, SELDOM)
            self._times, self._paused = [], 0
