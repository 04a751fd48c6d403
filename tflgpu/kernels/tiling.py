"""How the work of a kernel is divided: tiles, one for each work-group, and split-K within a work-group.

On a GPU, work-items (or warps, on tensor cores) hold the accumulators of their outputs in registers. Large tiles use
each operand more often. Small tiles, and tiles whose k-steps ``split_k`` work-items share, leave work for every compute
unit where an image is small. The work-items of one split tile add up their partial sums in local memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.target import Target
from tflgpu.target.kernel_numbers import kernel_numbers

SPLIT_K = (1, 2, 4, 8)
# float4 elements of local memory that a work-group takes at most, also where there is more: 32 KiB. Groups that take
# more leave no room for a second one on a compute unit.
LOCAL_VEC4S = 2048

# Vec4s that a work-item of a GPU loads at most before it adds them up: it waits for memory once for all of them.
LOADS_AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class ItemTiles:
    """Numbers of the tiles of CPUs whose kernels have no reason for others.

    Attributes:
        least_operations: Floating-point operations that are worth starting a tile: some ten microseconds of a core.
        tiles_per_core: Tiles for each core, so that none waits for long.
    """

    least_operations: int
    tiles_per_core: int


ITEM_TILES = kernel_numbers("tiles of items", ItemTiles)


def tile_count(items: int, per_tile: int) -> int:
    """Return how many tiles items fill; the last may be smaller.

    Args:
        items: Their number.
        per_tile: Items of a tile.
    """
    return -(-items // per_tile)


def even_part(items: int, most: int) -> int:
    """Return the size of equal parts, of which there are as few as can be; the last may be smaller.

    Args:
        items: Their number.
        most: Items of a part, at most; less than one counts as one.
    """
    return tile_count(items, tile_count(items, max(1, most)))


def power_of_two(most: int) -> int:
    """Return the largest power of two that is at most a number.

    Args:
        most: The number, at least 1.
    """
    return 1 << most.bit_length() - 1


def items_per_tile(items: int, target: Target, cost: int) -> int:
    """Return how many of equal pieces of work one tile should take.

    On a CPU a tile is one work-item's loop; on a GPU each work-item takes one piece.

    Args:
        items: The number of pieces.
        target: The device.
        cost: Rough floating-point operations of one piece.
    """
    if target.family == "gpu":
        return target.local_size
    enough = max(1, ITEM_TILES.least_operations // max(1, cost))
    balanced = tile_count(items, target.compute_units * ITEM_TILES.tiles_per_core)
    return min(items, max(enough, balanced), most_per_tile(target, cost))


def most_per_tile(target: Target, cost: int) -> int:
    """Return how many pieces the loops of one work-item can compute; at least one.

    A turn of a loop computes an operation, if not more: softmax passes three times through a row for 4 of an element.

    Args:
        target: The device.
        cost: Floating-point operations of a piece.
    """
    return max(1, target.limits.loop_turns // max(1, cost))


def waves(tiles: int, target: Target) -> int:
    """Return how many tiles the busiest compute unit of a GPU computes.

    Args:
        tiles: All of a kernel.
        target: The GPU.
    """
    return tile_count(tiles, target.compute_units)


def can_split(target: Target, split_k: int, vec4s: int) -> bool:
    """Whether work-items can share accumulators; each share has whole groups of work-items in step.

    Args:
        target: The device.
        split_k: The number of shares.
        vec4s: Accumulators of a work-item.
    """
    if split_k == 1:
        return True
    whole = target.local_size // split_k >= target.cost_model.lockstep
    return whole and fits_local(target, split_workspace(target, split_k, vec4s))


def fits_registers(target: Target, vec4s: int) -> bool:
    """Whether a work-item may have accumulators: half of the registers are for operands and addresses.

    Args:
        target: The device.
        vec4s: Accumulators of a work-item.
    """
    return 2 * LANES * vec4s <= target.limits.registers


def operand_vec4s(target: Target) -> int:
    """How many vec4s of sums and loaded operands fit into a work-item's registers; a quarter is left for addresses."""
    return target.limits.registers // LANES * 3 // 4


def fits_local(target: Target, vec4s: int) -> bool:
    """Whether a work-group may take local memory to share work.

    Where a part of the global memory serves as local memory, work-items that share nothing are faster: by 3 to 27% of
    the time of face_landmark, selfie_segmenter and MobileNetV1 0.25 on Intel's runtime and PoCL, in turns.

    Args:
        target: The device.
        vec4s: Elements of float4.
    """
    if not target.limits.local_is_real:
        return vec4s == 0
    return vec4s <= min(LOCAL_VEC4S, local_vec4s(target))


def local_vec4s(target: Target) -> int:
    """float4 elements of local memory that a device has for a tile; a persistent kernel needs one for its barrier."""
    return max(0, target.limits.local_vec4s - (target.executor in ("persistent", "auto")))


def reduces_in_subgroups(target: Target, sharers: int) -> bool:
    """Whether sub-groups reduce what work-items share, before all of them meet in local memory.

    Only where these are the whole group: which of its work-items form a sub-group is the compiler's affair.

    Args:
        target: The device.
        sharers: Work-items that share a result.
    """
    return target.limits.subgroup_width > 0 and sharers == target.local_size


def split_workspace(target: Target, split_k: int, vec4s: int) -> int:
    """Return the float4 elements of local memory for the partial sums of all work-items; none without a split.

    Args:
        target: The device.
        split_k: The number of shares.
        vec4s: Accumulators of a work-item.
    """
    return target.local_size * vec4s if split_k > 1 else 0
