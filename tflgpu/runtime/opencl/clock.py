"""When launches begin and end: by the device's clock, or by the host's where the device has none."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

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
