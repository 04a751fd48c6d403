"""When launches begin and end, by the device's clock or the host's, and which of several candidates is the fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter, perf_counter_ns
from typing import TypeVar

import numpy as np
import pyopencl as cl

Launch = tuple[cl.Kernel, tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # global size, local size, global offset


def measure_launches(queue: cl.CommandQueue, launches: Sequence[Launch]) -> list[tuple[float, float]]:
    """Run kernels one after another, and wait.

    By the host's clock a launch ends when the host knows of it, which adds some microseconds.

    Args:
        queue: One that profiles, if the device has a clock.
        launches: Kernels with their sizes.

    Returns:
        Begin and end of each, in seconds since the first one began.
    """
    if not _has_clock(queue.device):
        times = [_by_host(queue, launch) for launch in launches]
    else:
        events = [cl.enqueue_nd_range_kernel(queue, *launch) for launch in launches]
        queue.finish()
        times = [(event.profile.start, event.profile.end) for event in events]
    return [((begin - times[0][0]) * 1e-9, (end - times[0][0]) * 1e-9) for begin, end in times]


def _has_clock(device: cl.Device) -> bool:
    return device.profiling_timer_resolution > 0


def _by_host(queue: cl.CommandQueue, launch: Launch) -> tuple[int, int]:
    """In nanoseconds."""
    queue.finish()
    begin = perf_counter_ns()
    cl.enqueue_nd_range_kernel(queue, *launch)
    queue.finish()
    return begin, perf_counter_ns()


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
