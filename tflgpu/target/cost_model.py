"""What the work of a GPU costs: the numbers by which planning ranks tile configurations and decides on fusions.

A kernel's time is the time of its busiest compute unit. That unit computes its tiles one after another, which are the
kernel's waves; a tile takes a latency and then its phases. Kernels count the work of a phase (k-steps, loads, bytes,
products); the model turns counts into cycles. Only ratios matter, so cycles are those of the device that was measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class MatrixUnitCosts:
    """Costs of kernels on matrix units.

    pixel_block_cycles, weight_block_cycles: of the caches, for one block of 16 x 16 operands that a warp loads: pixels
        come from four slices, weights are 512 bytes in a row.
    depthwise_vec4_cycles: of a vec4 of a depthwise result that each work-item computes from global memory.
    depthwise_row_vec4_cycles: the same from local memory.
    local_k_step_latency: of a k-step whose operands are in registers and in local memory.
    """

    pixel_block_cycles: float
    weight_block_cycles: float
    depthwise_vec4_cycles: float
    depthwise_row_vec4_cycles: float
    local_k_step_latency: float


@dataclass(frozen=True, kw_only=True)
class MultistageCosts:
    """Costs of convolutions that stage their operands in local memory, in several stages.

    macs, local_bytes, l2_bytes, stored_bytes: per cycle of a compute unit, as kernels reach them.
    tile_latency: of a tile without any k-step. copy_latency: until a copy to local memory is there. barrier_latency: of
        the barrier of one stage. While one work-group waits for these, others of the compute unit work.
    pointwise_factor: by how much windows of one pixel take longer than the other numbers say, because the L1 cache
        serves no pixel twice.
    """

    macs: float
    local_bytes: float
    l2_bytes: float
    stored_bytes: float
    tile_latency: float
    copy_latency: float
    barrier_latency: float
    pointwise_factor: float


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Costs in cycles of one compute unit.

    tile_latency: of a tile without any k-step, from its first load to its last store.
    k_step_latency: of a k-step whose operands come from memory, while four k-steps are under way at once.
    batch_latency: of any number of k-steps whose operands are loaded at once.
    warp_vec4_cycles: of one vec4 that each work-item of a warp loads, or of one 4 x 4 product that each computes.
    reduction_latency, local_vec4s: of adding up partial sums: its latency, and the vec4s per cycle of local memory.
    shared_weight_bytes: per cycle, while all compute units read the same weights.
    launch_latency: from the end of one launched kernel to the beginning of the next.
    interval_latency: of the barrier between two kernels of the persistent executor.
    """

    tile_latency: float
    k_step_latency: float
    batch_latency: float
    warp_vec4_cycles: float
    reduction_latency: float
    local_vec4s: float
    shared_weight_bytes: float
    launch_latency: float
    interval_latency: float
    matrix_unit: MatrixUnitCosts
    multistage: MultistageCosts

    def kernel(self, waves: int, phases: float) -> float:
        """Cycles of a kernel whose tiles have ``phases`` cycles of work each."""
        return waves * (self.tile_latency + phases)

    def k_loop(self, k_steps: int, busy: float) -> float:
        """Cycles of ``k_steps`` k-steps, each of which keeps the compute unit busy for ``busy`` cycles."""
        return k_steps * max(self.k_step_latency, busy)

    def reduction(self, vec4s: int) -> float:
        """Cycles of adding up partial sums, ``vec4s`` of a work-group; nothing where there are none."""
        return self.reduction_latency + 2 * vec4s / self.local_vec4s if vec4s else 0.0

    def next_kernel(self, executor: Literal["launch", "persistent", "auto"]) -> float:
        """Cycles between two kernels that depend on each other. ``auto`` is planned as the persistent executor."""
        return self.launch_latency if executor == "launch" else self.interval_latency


# Where nothing was measured: the costs of one GPU, NVIDIA's H200. The four numbers that say "49 tiles" were chosen
# together: they rank first a tile that is within 5% of the best of 49 for all layers of MobileNetV1 but two (9 and
# 13%), in both precisions.
BUILT_IN_COSTS = CostModel(
    tile_latency=1500,  # 49 tiles
    k_step_latency=200,  # 49 tiles
    batch_latency=800,  # four latencies of a k-step, because four are under way at once
    warp_vec4_cycles=4,  # data sheet: a compute unit multiplies 128 elements and loads 32 in a cycle
    reduction_latency=100,  # 49 tiles
    local_vec4s=8,  # 49 tiles; data sheet: 128 bytes of local memory in a cycle
    shared_weight_bytes=32,  # squeeze-and-excitations of selfie_segmenter on an H100
    launch_latency=4000,  # 2 us between dependent launches on an H200
    interval_latency=1300,  # the barrier of 132 work-groups takes 0.63 us on an H100
    matrix_unit=MatrixUnitCosts(
        pixel_block_cycles=20,  # 13 warp tiles of each convolution of ResNet50 at batch 1 on an H200
        weight_block_cycles=8,  # the same
        depthwise_vec4_cycles=800,  # pairs of MobileNetV1, MobileNetV2 and face_landmark on an H200
        depthwise_row_vec4_cycles=500,  # the same
        local_k_step_latency=50,  # the same
    ),
    multistage=MultistageCosts(  # chosen together: least time of 45 convolutions at batch 64 on an H100
        macs=640,
        local_bytes=128,
        l2_bytes=24,
        stored_bytes=12,
        tile_latency=4000,
        copy_latency=1000,
        barrier_latency=100,
        pointwise_factor=1.3,
    ),
)
