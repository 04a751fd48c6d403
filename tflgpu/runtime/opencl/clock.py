"""When launches begin and end: by the device's clock, or by the host's where the device has none."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns

import pyopencl as cl

Launch = tuple[cl.Kernel, tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # global size, local size, global offset


def measure_launches(queue: cl.CommandQueue, launches: Sequence[Launch]) -> list[tuple[int, int]]:
    """Run kernels one after another on a queue that profiles, and wait. Returns begin and end of each in nanoseconds.

    By the host's clock a launch ends when the host knows of it, which adds some microseconds.
    """
    if not _has_clock(queue.device):
        return [_by_host(queue, launch) for launch in launches]
    events = [cl.enqueue_nd_range_kernel(queue, *launch) for launch in launches]
    queue.finish()
    return [(event.profile.start, event.profile.end) for event in events]


def _has_clock(device: cl.Device) -> bool:
    return device.profiling_timer_resolution > 0


def _by_host(queue: cl.CommandQueue, launch: Launch) -> tuple[int, int]:
    queue.finish()
    begin = perf_counter_ns()
    cl.enqueue_nd_range_kernel(queue, *launch)
    queue.finish()
    return begin, perf_counter_ns()
