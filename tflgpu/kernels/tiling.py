"""How the work of a kernel is divided into tiles, one for each work-group."""

from __future__ import annotations

from tflgpu.target import Target


def items_per_tile(items: int, target: Target, cost: int) -> int:
    """How many of ``items`` equal pieces of work one tile should take.

    cost: rough floating-point operations of one piece. On a CPU a tile is one work-item's loop: at least some ten
    microseconds, so that starting it does not count, but several tiles for each core, so that none waits for long.
    On a GPU each work-item takes one piece.
    """
    if target.family == "gpu":
        return target.local_size
    enough = max(1, 100_000 // max(1, cost))
    balanced = -(-items // (target.compute_units * 8))
    return min(items, max(enough, balanced))


def tile_count(items: int, per_tile: int) -> int:
    return -(-items // per_tile)
