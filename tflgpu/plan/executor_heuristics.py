"""Executor heuristics: which executor runs a plan faster, as far as the number of its tiles tells."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from tflgpu.kernels.tiling import waves
from tflgpu.plan.plan import Plan

# Waves of a kernel, on average. Up to FEW a launch costs more than what it launches. From MANY on, kernels take so long
# that launches gain more, by having several work-groups on each compute unit. Seen on an H200 (fp16), time of launches
# over persistent: 1.6 to 4 for five networks of 1.0 to 1.3 waves, 1.25 at 2.1 waves, 0.90 to 1.10 for three of 2.9 to
# 4.3, 0.92 at 6.4, 0.82 at 7.9, 0.7 to 0.8 for three of 10 to 16.
FEW, MANY = 3.0, 6.0


def clear_choice(plans: Sequence[Plan]) -> Literal["launch", "persistent"] | None:
    """Return the executor that is surely faster for plans that were made for the persistent one.

    The persistent executor has one work-group on each compute unit, which takes one tile after another: the kernel's
    *waves*. A launch has as many work-groups on each compute unit as fit.

    Args:
        plans: Those of all partitions.

    Returns:
        None if only measuring can tell.
    """
    found = [waves(planned.kernel.tiles, plan.target) for plan in plans for planned in plan.kernels]
    average = fmean(found) if found else 0.0
    if average < FEW:
        return "persistent"
    return "launch" if average > MANY else None
