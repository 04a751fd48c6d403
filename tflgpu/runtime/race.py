"""Measures which of several ways to do the same is the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TypeVar

import numpy as np

Rival = TypeVar("Rival")

ROUNDS = 9

ENOUGH_SECONDS = 0.2


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
