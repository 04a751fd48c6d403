"""The work of kernels whose work-items each walk through K."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.tiling import split_workspace, tile_count
from tflgpu.target import Target


@dataclass(frozen=True)
class KLoopWork:
    """Work of each work-item of a tile.

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

    def demand(self, target: Target) -> Demand:
        """Return the demand. Loads and products of a k-step overlap, those of the work-items do not."""
        model = target.cost_model
        busy = model.working(target.local_size, self.loads, self.products, self.tile)
        if self.split_k > 1:
            busy *= model.splitting
        loop = Phase(tile_count(self.k_steps, self.split_k), (busy,), wait=model.k_step_latency)
        return Demand(self.tiles, (loop, split_sum(self.split_k, self.accumulators, target)), model.tile_latency)


def split_sum(split_k: int, accumulators: int, target: Target) -> Phase:
    """Return a work-group adds up partial sums, ``accumulators`` vec4s of each work-item."""
    return Phase(1, (target.cost_model.reduction(split_workspace(target, split_k, accumulators)),))
