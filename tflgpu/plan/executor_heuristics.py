"""Executor heuristics: which executor runs a plan faster, as far as the number of its tiles tells."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from tflgpu.kernels.tiling import waves
from tflgpu.plan.plan import Plan

# Latencies of the waves of a kernel, on average, over that of a launch. Below SHORT a launch costs more than a kernel.
# Above LONG kernels take so long that launches gain more, by having several work-groups on each compute unit. Seen on
# an H200 (fp16), where they are 2 and 8 waves, time of launches over persistent: 1.6 to 4 for five networks of 1.0 to
# 1.3 waves, 1.3 at 2.5 waves, 0.7 to 0.8 for three of 10 to 16.
SHORT, LONG = 0.75, 3.0


def clear_choice(plans: Sequence[Plan]) -> Literal["launch", "persistent"] | None:
    """The executor that is surely faster for these plans, made for the persistent one; None if only measuring can tell.

    The persistent executor has one work-group on each compute unit, which takes one tile after another: the kernel's
    *waves*. A launch has as many work-groups on each compute unit as fit.
    """
    found = [waves(planned.kernel.tiles, plan.target) for plan in plans for planned in plan.kernels]
    if not found:
        return "persistent"
    costs = plans[0].target.cost_model
    share = fmean(found) * costs.tile_latency / costs.launch_latency
    if share < SHORT:
        return "persistent"
    return "launch" if share > LONG else None
