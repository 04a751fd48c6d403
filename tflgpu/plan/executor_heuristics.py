"""Which executor suits a plan, as far as its tiles tell."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from tflgpu.kernels.tiling import tile_count
from tflgpu.plan.plan import Plan

# Waves of a kernel on average. Below FEW a launch costs more than a kernel. Above MANY kernels are so long that
# launches gain more, by having several work-groups on each compute unit. Seen on an H200 (fp16), time of launches over
# persistent: 1.6 to 4 for five networks of 1.0 to 1.3 waves, 1.3 at 2.5 waves, 0.7 to 0.8 for three of 10 to 16.
FEW, MANY = 2.0, 8.0


def clear_choice(plans: Sequence[Plan]) -> Literal["launch", "persistent"] | None:
    """The executor that surely runs plans for the persistent one faster; None if only measuring can tell.

    The persistent executor has one work-group on each compute unit, which takes one tile after another. These are the
    kernel's *waves*. A launch has as many groups on each unit as fit.
    """
    waves = [tile_count(k.kernel.tiles, plan.target.compute_units) for plan in plans for k in plan.kernels]
    if not waves or fmean(waves) < FEW:
        return "persistent"
    return "launch" if fmean(waves) > MANY else None
