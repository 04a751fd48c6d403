"""How long kernels take whose work-items each walk through K: from counts to cycles, by the target's cost model."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.tiling import split_workspace, tile_count, waves
from tflgpu.target import Target


@dataclass(frozen=True)
class KLoopWork:
    """What each work-item of a tile does.

    k_steps: iterations over K, which ``split_k`` work-items share. loads, products: vec4s that it loads, and 4 x 4
    products that it computes, in one k-step. accumulators: vec4s of its results. tile: pixels and slices of a
    dense convolution.
    """

    tiles: int
    k_steps: int
    loads: float
    products: float
    accumulators: int
    split_k: int = 1
    tile: tuple[int, ...] = ()


def k_loop_cycles(work: KLoopWork, target: Target) -> float:
    """Cycles of the kernel: loads and products of a k-step overlap, those of the work-items do not."""
    model = target.cost_model
    busy = model.working(target.local_size, work.loads, work.products, work.tile)
    if work.split_k > 1:
        busy *= model.splitting
    loop = model.k_loop(tile_count(work.k_steps, work.split_k), busy)
    return model.kernel(waves(work.tiles, target), loop + split_cycles(work.split_k, work.accumulators, target))


def split_cycles(split_k: int, accumulators: int, target: Target) -> float:
    """Cycles in which a work-group adds up partial sums, ``accumulators`` vec4s of each work-item."""
    return target.cost_model.reduction(split_workspace(target, split_k, accumulators))
