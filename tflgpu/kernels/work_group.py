"""How the work-items of a GPU's work-group share a sum of products, and roughly what that takes.

A *part* is the outputs that one work-item (or one warp, on matrix units) holds in registers. Large parts use each
operand more often; small parts, and parts whose steps ``splits`` work-items share, leave work for every compute unit
where an image is small. Work-items of one part add up their sums in local memory.
"""

from __future__ import annotations

from tflgpu.kernels.tiling import tile_count
from tflgpu.target import Target

WARP = 32  # work-items that a GPU runs in step, of the vendors known

SPLITS = (1, 2, 4, 8)

LOCAL_QUADS = 2048  # float4 elements of local memory that a group may take: 32 KiB

# Cycles of a compute unit, roughly, as seen on an H200: of a tile without any step, from its first load to its last
# store; of a step of which four are under way at once while memory is waited for, and of all that are loaded at once;
# of adding up split sums.
TILE_LATENCY = 1500

STEP_LATENCY = 200

BATCH_LATENCY = 4 * STEP_LATENCY

_REDUCTION_LATENCY = 100

# From the end of one kernel to the beginning of the next, by executor.
NEXT_KERNEL = {"persistent": 1300.0, "launch": 4000.0}

_LOCAL_QUADS_PER_CYCLE = 8


def fits(target: Target, splits: int, quads: int) -> bool:
    """Whether ``splits`` work-items can share parts of ``quads`` output quads; each split is made of whole warps."""
    if splits == 1:
        return True
    return target.local_size // splits >= WARP and scratch(target, splits, quads) <= LOCAL_QUADS


def scratch(target: Target, splits: int, quads: int) -> int:
    """float4 elements of local memory for the sums of all work-items, ``quads`` each."""
    return target.local_size * quads if splits > 1 else 0


def cycles(target: Target, *, tiles: int, steps: int, step_cycles: float, splits: int, quads: int) -> float:
    """Rough time of the busiest compute unit.

    steps: of one part, each taking the whole group at least ``step_cycles``, be it to compute or to load.
    """
    step = max(STEP_LATENCY, step_cycles)
    waves = tile_count(tiles, target.compute_units)
    return waves * (TILE_LATENCY + tile_count(steps, splits) * step + reduction_cycles(target, splits, quads))


def reduction_cycles(target: Target, splits: int, quads: int) -> float:
    """Rough time that a group takes to add up split sums, ``quads`` of each work-item."""
    if splits == 1:
        return 0.0
    return _REDUCTION_LATENCY + 2 * scratch(target, splits, quads) / _LOCAL_QUADS_PER_CYCLE
