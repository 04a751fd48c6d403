"""How long kernels on matrix units take: from the counts of their work to cycles, by the target's cost model."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.kernels.gpu.costs import split_cycles
from tflgpu.kernels.gpu.excite_kernel import groups_at_once
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.operands import Operands
from tflgpu.kernels.tiling import tile_count, waves
from tflgpu.target import ITEM_BYTES, VEC4_BYTES, Target


def load_cycles(operands: Operands, pixel_blocks: int, weight_blocks: int) -> float:
    """Cycles of the caches for blocks of operands."""
    image, weights = operands.sizes
    pixels = UNIT.costs.pixel_block_cycles * image * pixel_blocks
    return pixels + UNIT.costs.weight_block_cycles * weights * weight_blocks


def part_product_cycles(operands: Operands, products: int) -> float:
    """Cycles of matrix units for ``products`` of two blocks, where operands are floats. Those of halves are hidden."""
    return 0.0 if operands.are_halves else UNIT.costs.part_product_cycles * products * len(operands.parts)


@dataclass(frozen=True)
class GemmWork:
    """Implicit GEMM: each warp loads ``row_blocks`` blocks of pixels and ``column_blocks`` of weights in a k-step.

    k_steps: of a warp tile, which ``split_k`` warps share. packed: whether weights lie as lanes load them; else they
    cost as much as pixels.
    """

    operands: Operands
    tiles: int
    k_steps: int
    row_blocks: int
    column_blocks: int
    split_k: int
    packed: bool = True

    @property
    def blocks(self) -> tuple[int, int]:
        """Of pixels and of packed weights, that a warp loads in a k-step."""
        return (self.row_blocks, self.column_blocks) if self.packed else (self.row_blocks + self.column_blocks, 0)


def gemm_cycles(work: GemmWork, target: Target) -> float:
    """Cycles of the kernel: the caches serve one warp of a work-group after another."""
    model, warps = target.cost_model, target.local_size // UNIT.lanes
    busy = warps * max(
        load_cycles(work.operands, *work.blocks),
        part_product_cycles(work.operands, work.row_blocks * work.column_blocks),
    )
    loop = model.k_loop(tile_count(work.k_steps, work.split_k), busy)
    accumulators = 2 * work.row_blocks * work.column_blocks
    return model.kernel(waves(work.tiles, target), loop + split_cycles(work.split_k, accumulators, target))


@dataclass(frozen=True)
class MultistageWork:
    """Implicit GEMM with operands in local memory: what one work-group does in one stage, and in all.

    stages_in_all: how many stages it computes. macs: of one stage. copied_bytes, read_bytes: of one stage, to local
    memory and from there. l2_bytes: of those copied, what L1 does not have yet. result_bytes: that are stored behind
    the last stage, or loaded there to join the result. depth: stages of local memory. resident: work-groups that a
    compute unit has registers for.
    """

    tiles: int
    stages_in_all: int
    macs: int
    copied_bytes: int
    read_bytes: int
    l2_bytes: float
    result_bytes: int
    depth: int
    resident: int


def multistage_cycles(work: MultistageWork, target: Target) -> float:
    """Cycles of the kernel: latencies are hidden by the other stages, and by other work-groups of the compute unit."""
    costs, in_turn = UNIT.multistage, waves(work.tiles, target)
    busy = max(
        work.macs / costs.macs,
        (work.read_bytes + work.copied_bytes) / costs.local_bytes,
        work.l2_bytes / costs.l2_bytes,
    )
    groups = min(work.resident, in_turn)
    stage = max(busy, costs.copy_latency / (work.depth - 1) / groups) + costs.barrier_latency / groups
    storing = work.result_bytes / costs.stored_bytes
    return in_turn * (costs.tile_latency / groups + work.stages_in_all * stage + storing)


@dataclass(frozen=True)
class PatchWork:
    """The same with all taps reading one copy of the image: what one work-group does in one iteration, and in all.

    iterations: how many it computes. macs, copied_bytes, read_bytes: of one iteration. warps: of the work-group.
    result_bytes, resident: as of :class:`MultistageWork`.
    """

    tiles: int
    iterations: int
    macs: int
    copied_bytes: int
    read_bytes: int
    result_bytes: int
    warps: int
    resident: int


def patch_cycles(work: PatchWork, target: Target) -> float:
    """Cycles of the kernel: what an iteration multiplies and moves hardly overlaps.

    A compute unit has several matrix units, among which it divides its warps.
    """
    costs, in_turn = UNIT.patch, waves(work.tiles, target)
    groups = min(work.resident, in_turn)
    warps = groups * work.warps
    busy_units = warps / tile_count(warps, costs.units)  # while the last warps are multiplying
    iteration = (
        work.macs / (costs.macs * busy_units)
        + (work.read_bytes + work.copied_bytes) / costs.local_bytes
        + work.copied_bytes / costs.l2_bytes
        + costs.barrier_latency / groups
    )
    return in_turn * (work.iterations * iteration + work.result_bytes / UNIT.multistage.stored_bytes)


@dataclass(frozen=True)
class RowsWork:
    """Implicit GEMM with rows of the image in local memory: a k-step of a warp has ``products`` of 16 x 8 results."""

    tiles: int
    k_steps: int
    warps: int
    products: int


def rows_cycles(work: RowsWork, target: Target) -> float:
    """Cycles of the kernel: the warps of a compute unit multiply one after another."""
    model = target.cost_model
    loop = model.k_loop(work.k_steps, work.warps * work.products * UNIT.costs.row_product_cycles)
    return model.kernel(waves(work.tiles, target), loop)


@dataclass(frozen=True)
class PointwiseDepthwiseWork:
    """A pointwise convolution to local memory, then a depthwise one from there.

    k_steps: that a warp computes one after another. active_warps: that load in a k-step, one block of pixels and
    ``column_blocks`` of weights each. depthwise_vec4s: of the result, that a work-item computes.
    workspace, result_at: float4 elements of local memory in all, and of them those ahead of the pointwise result.
    """

    operands: Operands
    tiles: int
    k_steps: int
    active_warps: int
    column_blocks: int
    split_k: int
    depthwise_vec4s: int
    result_at: int
    workspace: int


def pointwise_depthwise_cycles(work: PointwiseDepthwiseWork, target: Target) -> float:
    """Cycles of the kernel: the two convolutions come one after the other."""
    model, costs = target.cost_model, UNIT.costs
    # A block of pixels counts as much as one of weights here.
    image, weights = work.operands.sizes
    loads = costs.weight_block_cycles * (image + weights * work.column_blocks)
    busy = work.active_warps * max(loads, part_product_cycles(work.operands, work.column_blocks))
    pointwise = model.k_loop(work.k_steps, busy) + split_cycles(work.split_k, 2 * work.column_blocks, target)
    depthwise = work.depthwise_vec4s * costs.depthwise_row_vec4_cycles
    return model.kernel(waves(work.tiles, target), pointwise + depthwise)


@dataclass(frozen=True)
class DepthwisePointwiseWork:
    """A depthwise convolution to local memory, then a pointwise one from there.

    depthwise_items: of so many ``columns`` each, that a work-item computes. rounds: of warp tiles that a warp computes
    one after another. k_steps: of one round. batches: of k-steps whose weights are loaded at once, in one round.
    weight_blocks: that active warps load in all rounds.
    workspace, sum_vec4s: float4 elements of local memory in all, and of them those for partial sums.
    """

    operands: Operands
    tiles: int
    depthwise_items: int
    columns: int
    rounds: int
    k_steps: int
    batches: int
    weight_blocks: int
    column_blocks: int
    split_k: int
    sum_vec4s: int
    workspace: int


def depthwise_pointwise_cycles(work: DepthwisePointwiseWork, target: Target) -> float:
    """Cycles of the kernel: weights that fit into registers are loaded while the depthwise convolution computes."""
    model, costs = target.cost_model, UNIT.costs
    depthwise = work.depthwise_items * work.columns * costs.depthwise_vec4_cycles
    loading = max(
        load_cycles(work.operands, 0, work.weight_blocks), part_product_cycles(work.operands, work.weight_blocks)
    )
    if work.rounds == 1 and work.batches == 1:
        both = max(depthwise, loading) + work.k_steps * costs.local_k_step_latency
    else:
        both = depthwise + max(work.rounds * work.batches * model.batch_latency, loading)
    reduction = split_cycles(work.split_k, 2 * work.column_blocks, target)
    return model.kernel(waves(work.tiles, target), both + reduction)


@dataclass(frozen=True)
class DiagonalWork:
    """A depthwise convolution as products by diagonal matrices: the vec4s that a lane loads and stores."""

    tiles: int
    vec4s: int


def diagonal_cycles(work: DiagonalWork, target: Target) -> float:
    """Cycles of the kernel: caches serve one warp after another. Work-groups of launches hide what others wait for."""
    model, in_turn = target.cost_model, waves(work.tiles, target)
    busy = target.local_size // UNIT.lanes * work.vec4s * UNIT.costs.diagonal_vec4_cycles
    return model.tile_latency * (1 if target.executor == "launch" else in_turn) + in_turn * busy


def gating_cycles(image: Storage, hidden: int, target: Target) -> float:
    """Cycles in which a work-group adds up a hidden layer of many shares and computes the gates of an image."""
    model = target.cost_model
    slices = tile_count(hidden, LANES)
    shares = groups_at_once(target) * slices * VEC4_BYTES
    weights = slices * LANES * LANES * image.slices * ITEM_BYTES[target.storage]
    return 2 * model.batch_latency + (shares + weights) / model.shared_weight_bytes
