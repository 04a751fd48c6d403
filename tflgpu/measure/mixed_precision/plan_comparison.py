"""Whether tensors in half save a plan anything."""

from __future__ import annotations

from tflgpu.compiler import Plans
from tflgpu.plan.traffic import traffic

# A mixture has to save this part of the bytes that the plan in float moves. On an H200 pose_landmark_lite with 86 of 90
# tensors in float took 369 us, in fp32 362; yolox_nano with 99 of 118 513 us, in fp32 514.
LEAST_SAVED = 0.1


def gains_nothing(mixed: Plans, in_float: Plans) -> bool:
    """Whether a mixture has as many kernels as the plan in float, or more, and moves about as many bytes."""
    (kernels, moved), (kernels_in_float, moved_in_float) = _size(mixed), _size(in_float)
    return kernels >= kernels_in_float and moved > (1 - LEAST_SAVED) * moved_in_float


def _size(plans: Plans) -> tuple[int, int]:
    """Kernels, and the bytes that they move."""
    every = [(plan, kernel) for each in plans.values() for plan in each for kernel in plan.kernels]
    return len(every), sum(traffic(plan, kernel) for plan, kernel in every)
