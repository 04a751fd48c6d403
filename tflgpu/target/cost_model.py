"""Costs of a GPU's work: the numbers by which planning ranks tile configurations and decides on fusions.

Kernels count their work (k-steps, loads, bytes, products), and these numbers turn counts into cycles;
:mod:`tflgpu.kernels.demand` says what a kernel takes of all. They are data: ``measured_costs.json`` has those of a GPU,
of its tensor cores and of a CPU's core, and says for each where and when it was measured, and by which layers. Only
ratios matter, so cycles are those of the device that was measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

TABLE = Path(__file__).with_name("measured_costs.json")


def measured_costs(name: str) -> dict[str, Any]:
    """Return the numbers of a row of the table, with tuples in place of its lists.

    Args:
        name: The row's.

    Raises:
        StopIteration: The table has no such row.
    """
    row = next(row for row in json.loads(TABLE.read_text(encoding="utf-8")) if row["name"] == name)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row["costs"].items()}


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Costs in cycles of one compute unit.

    tile_latency: of a tile without any k-step, from its first load to its last store.
    k_step_latency: of a k-step whose operands come from memory, while four k-steps are under way at once.
    batch_latency: of any number of k-steps whose operands are loaded at once.
    loaded_vec4s, products: vec4s that a compute unit loads in a cycle while its caches have them, and 4 x 4 products
        that it computes.
    tile_products: (pixels, slices, products) of convolutions by their tile, which tell more where they are known: of
        registers, and of what the compiler makes of it.
    splitting: by how much the k-steps that work-items share take longer, the reduction aside.
    reduction_latency, local_vec4s: of adding up partial sums: its latency, and the vec4s per cycle of local memory.
    shared_weight_bytes: per cycle, while all compute units read the same weights.
    launch_latency: from the end of one launched kernel to the beginning of the next.
    interval_latency: of the barrier between two kernels of the persistent executor.
    lockstep: work-items that run in step; a power of two. It does not pay to divide work within them.
    """

    tile_latency: float
    k_step_latency: float
    batch_latency: float
    loaded_vec4s: float
    products: float
    tile_products: tuple[tuple[int, int, float], ...]
    splitting: float
    reduction_latency: float
    local_vec4s: float
    shared_weight_bytes: float
    launch_latency: float
    interval_latency: float
    lockstep: int

    def working(self, items: int, loads: float, products: float, tile: tuple[int, ...]) -> float:
        """Return the cycles in which work-items of a compute unit load and multiply, which overlap.

        Args:
            items: The number of work-items.
            loads: Vec4s that each loads.
            products: Products of 4 x 4 that each makes.
            tile: Pixels and slices of a work-item, by which a measured rate is looked up.
        """
        for pixels, slices, rate in self.tile_products:
            if (pixels, slices) == tile:
                return items * products / rate
        return items * max(loads / self.loaded_vec4s, products / self.products)

    def reduction(self, vec4s: int) -> float:
        """Return the cycles of adding up partial sums; 0 where there are none.

        Args:
            vec4s: Partial sums of a work-group.
        """
        return self.reduction_latency + 2 * vec4s / self.local_vec4s if vec4s else 0.0

    def next_kernel(self, executor: Literal["launch", "persistent", "claiming", "auto"]) -> float:
        """Return the cycles between two kernels that depend on each other.

        Args:
            executor: ``auto`` is planned as the persistent executor.
        """
        return self.launch_latency if executor == "launch" else self.interval_latency


# Where nothing was measured of a device: the costs of one GPU.
BUILT_IN_COSTS = CostModel(**measured_costs("gpu"))
