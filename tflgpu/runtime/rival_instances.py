"""Artifacts of one model, of which only measuring can tell the fastest -> an instance of that."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tflgpu.artifact.artifact import Artifact
from tflgpu.artifact.cache import Cache
from tflgpu.errors import DeviceError
from tflgpu.report.stopwatch import Stopwatch
from tflgpu.runtime.fastest import fastest
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.opencl.build import build_together
from tflgpu.runtime.opencl.session import DeviceFailures, Session


def open_fastest(
    artifacts: Sequence[Artifact],
    session: Session,
    clock: Stopwatch,
    cache: Cache | None = None,
    trial_timeout: float | None = None,
    *,
    drafts: bool = False,
) -> Instance:
    """Return an instance of the artifact that the device runs in the least time. The errors are those of
    :class:`Instance`.

    If there are several artifacts, one that raises DeviceError is skipped, and none is compiled as a draft.

    Args:
        artifacts: Those of one model.
        session: The device.
        clock: Takes the times of building and of measuring.
        cache: Where binaries may be; None for no cache.
        trial_timeout: Seconds for the first run of LiteRT in a guarded process; None for no limit of the caller's.
        drafts: Whether programs may be compiled in less time, to slower code.
    """
    if len(artifacts) == 1:
        return Instance(artifacts[0], session, clock, cache, trial_timeout, drafts=drafts)
    rivals = []
    pieces = [piece for artifact in artifacts for piece in artifact.pieces]
    built = build_together({piece.source: piece.executable.parts for piece in pieces}, session, cache)
    for artifact in artifacts:
        with suppress(DeviceError), DeviceFailures(session.device, "trying an executor"):
            instance = Instance(artifact, session, clock, cache, trial_timeout, built=built)
            instance.warm_up()
            rivals.append(instance)
    if not rivals:
        return Instance(artifacts[0], session, clock, cache, trial_timeout)
    winner = fastest(rivals, Instance.launch)
    winner.reset_state()
    clock.lap("executors")
    return winner
