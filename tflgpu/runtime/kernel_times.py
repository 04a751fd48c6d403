"""An instance's measurements -> a profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tflgpu.artifact.artifact import DevicePartition
from tflgpu.report.profile import KernelTime
from tflgpu.runtime.executors.executor import LaunchTime


def kernel_times(
    pieces: Sequence[tuple[DevicePartition, list[LaunchTime] | None]], codes: Mapping[int, str]
) -> Iterator[KernelTime]:
    """Yield the times of each launch, as if each piece followed the one before.

    Args:
        pieces: With the begin and the end of each launch; None for a piece that was not measured.
        codes: The model's operators by index.
    """
    start = 0.0
    for number, (piece, intervals) in enumerate(pieces):
        if intervals is None:
            continue
        for launch, (begin, end, short, long) in zip(piece.executable.launches, intervals, strict=True):
            yield KernelTime(
                launch.function,
                tuple(codes[i] for i in launch.operators),
                start + begin,
                end - begin,
                launch.macs,
                launch.bytes,
                launch.groups,
                launch.local_size,
                launch.interval,
                number,
                short,
                long,
            )
        start += max((time.end for time in intervals), default=0.0)
