"""How the work-items of a GPU's work-group share a sum of products, and roughly what that takes.

A *part* is the outputs that one work-item (or one warp, on matrix units) holds in registers. Large parts use each
operand more often; small parts, and parts whose steps ``splits`` work-items share, leave work for every compute unit
where an image is small. Work-items of one part add up their sums in local memory.
"""

from __future__ import annotations

from tflgpu.kernels.tiling import tile_count
from tflgpu.target import Target

WARP = 32  # work-items that a GPU runs in step, of the vendors known

SPLIT_K = (1, 2, 4, 8)

LOCAL_VEC4S = 2048  # float4 elements of local memory that a group may take: 32 KiB

# Cycles of a compute unit, roughly, as seen on an H200: of a tile without any step, from its first load to its last
# store; of a step of which four are under way at once while memory is waited for, and of all that are loaded at once;
# of adding up split sums.
TILE_LATENCY = 1500

K_STEP_LATENCY = 200

BATCH_LATENCY = 4 * K_STEP_LATENCY

_REDUCTION_LATENCY = 100

# From the end of one kernel to the beginning of the next, by executor.
NEXT_KERNEL = {"persistent": 1300.0, "launch": 4000.0}

_LOCAL_VEC4S_PER_CYCLE = 8


def fits(target: Target, split_k: int, vec4s: int) -> bool:
    """Whether ``splits`` work-items can share parts of ``quads`` output quads; each split is made of whole warps."""
    if split_k == 1:
        return True
    return target.local_size // split_k >= WARP and workspace(target, split_k, vec4s) <= LOCAL_VEC4S


def workspace(target: Target, split_k: int, vec4s: int) -> int:
    """float4 elements of local memory for the sums of all work-items, ``quads`` each."""
    return target.local_size * vec4s if split_k > 1 else 0


def cycles(target: Target, *, tiles: int, k_steps: int, k_step_cycles: float, split_k: int, vec4s: int) -> float:
    """Rough time of the busiest compute unit.

    steps: of one part, each taking the whole group at least ``step_cycles``, be it to compute or to load.
    """
    step = max(K_STEP_LATENCY, k_step_cycles)
    waves = tile_count(tiles, target.compute_units)
    return waves * (TILE_LATENCY + tile_count(k_steps, split_k) * step + reduction_cycles(target, split_k, vec4s))


def reduction_cycles(target: Target, split_k: int, vec4s: int) -> float:
    """Rough time that a group takes to add up split sums, ``quads`` of each work-item."""
    if split_k == 1:
        return 0.0
    return _REDUCTION_LATENCY + 2 * workspace(target, split_k, vec4s) / _LOCAL_VEC4S_PER_CYCLE
