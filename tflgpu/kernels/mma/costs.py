"""The work of kernels on tensor cores: what each counts of its tiles, and what that demands of a compute unit."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.gpu.excite_kernel import groups_at_once
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.m16n8k16 import Operands
from tflgpu.kernels.portable.costs import split_sum
from tflgpu.kernels.tiling import tile_count, waves
from tflgpu.target import ITEM_BYTES, VEC4_BYTES, Target
from tflgpu.target.measured_costs import RingCosts


def load_cycles(operands: Operands, pixel_blocks: int, weight_blocks: int) -> float:
    """Cycles of the caches for blocks of operands."""
    image, weights = operands.sizes
    pixels = UNIT.costs.pixel_block_cycles * image * pixel_blocks
    return pixels + UNIT.costs.weight_block_cycles * weights * weight_blocks


def part_product_cycles(operands: Operands, products: int) -> float:
    """Cycles of tensor cores for ``products`` of two blocks, where operands are floats. Those of halves are hidden."""
    return 0.0 if operands.are_halves else UNIT.costs.part_product_cycles * products * len(operands.parts)


@dataclass(frozen=True)
class GemmWork:
    """Operands from memory: each warp loads ``row_blocks`` blocks of pixels, ``column_blocks`` of weights in a k-step.

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
        """Blocks of pixels and of packed weights that a warp loads in a k-step."""
        return (self.row_blocks, self.column_blocks) if self.packed else (self.row_blocks + self.column_blocks, 0)

    def demand(self, target: Target) -> Demand:
        """Return the caches serve one warp of a work-group after another."""
        model, warps = target.cost_model, target.local_size // UNIT.lanes
        products = self.row_blocks * self.column_blocks
        busy = (
            warps * load_cycles(self.operands, *self.blocks),
            warps * part_product_cycles(self.operands, products),
        )
        loop = Phase(tile_count(self.k_steps, self.split_k), busy, wait=model.k_step_latency)
        return Demand(self.tiles, (loop, split_sum(self.split_k, 2 * products, target)), model.tile_latency)


@dataclass(frozen=True)
class MultistageWork:
    """Operands in a ring of stages in local memory: what one work-group does in one stage, and in all.

    stages_in_all: how many stages it computes. macs: of one stage. copied_bytes, read_bytes: of one stage, to local
    memory and from there. l2_bytes: of those copied, what L1 does not have yet. result_bytes: that are stored after
    the last stage, or loaded there to join the result. depth: stages of local memory. resident: work-groups that a
    compute unit has registers for. costs: of the device.
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
    costs: RingCosts

    def demand(self, target: Target) -> Demand:
        """Latencies are hidden by the other stages, and by other work-groups of the compute unit."""
        costs = self.costs
        busy = (
            self.macs / costs.macs,
            (self.read_bytes + self.copied_bytes) / costs.local_bytes,
            self.l2_bytes / costs.l2_bytes,
        )
        stages = Phase(self.stages_in_all, busy, costs.copy_latency / (self.depth - 1), costs.barrier_latency)
        storing = Phase(1, (self.result_bytes / costs.stored_bytes,))
        return Demand(self.tiles, (stages, storing), costs.tile_latency, self.resident)


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

    def demand(self, target: Target) -> Demand:
        """Compute and copy do not overlap.

        A compute unit has several tensor cores, among which it divides its warps.
        """
        costs = UNIT.costs.patch
        warps = min(self.resident, waves(self.tiles, target)) * self.warps
        busy_units = warps / tile_count(warps, costs.units)  # while the last warps are multiplying
        busy = (
            self.macs / (costs.macs * busy_units)
            + (self.read_bytes + self.copied_bytes) / costs.local_bytes
            + self.copied_bytes / costs.l2_bytes
        )
        loop = Phase(self.iterations, (busy,), barrier=costs.barrier_latency)
        storing = Phase(1, (self.result_bytes / UNIT.costs.ring.stored_bytes,))
        return Demand(self.tiles, (loop, storing), latency=0.0, resident=self.resident)


@dataclass(frozen=True)
class RowsWork:
    """Operands in rows of the image in local memory: a k-step of a warp has ``products`` of 16 x 8 results."""

    tiles: int
    k_steps: int
    warps: int
    products: int

    def demand(self, target: Target) -> Demand:
        """Return the warps of a compute unit multiply one after another."""
        model, busy = target.cost_model, self.warps * self.products * UNIT.costs.row_product_cycles
        return Demand(self.tiles, (Phase(self.k_steps, (busy,), model.k_step_latency),), model.tile_latency)


@dataclass(frozen=True)
class PointwiseDepthwiseWork:
    """A pointwise convolution to local memory, then a depthwise one from there.

    parts, has_whole_image: as of :class:`tflgpu.kernels.gpu.excite_kernel.SummingWork`.
    k_steps: that a warp computes one after another. active_warps: that load in a k-step, one block of pixels and
    ``column_blocks`` of weights each. depthwise_vec4s: of the result, that a work-item computes.
    workspace, result_at: float4 elements of local memory in all, and of them those ahead of the pointwise result.
    """

    operands: Operands
    tiles: int
    parts: int
    has_whole_image: bool
    k_steps: int
    active_warps: int
    column_blocks: int
    split_k: int
    depthwise_vec4s: int
    result_at: int
    workspace: int

    def demand(self, target: Target) -> Demand:
        """Return the two convolutions come one after the other. A block of pixels counts as much as one of weights
        here."""
        model, costs = target.cost_model, UNIT.costs
        image, weights = self.operands.sizes
        loads = costs.weight_block_cycles * (image + weights * self.column_blocks)
        products = part_product_cycles(self.operands, self.column_blocks)
        loop = Phase(self.k_steps, (self.active_warps * loads, self.active_warps * products), model.k_step_latency)
        depthwise = Phase(self.depthwise_vec4s, (costs.depthwise_row_vec4_cycles,))
        sums = split_sum(self.split_k, 2 * self.column_blocks, target)
        return Demand(self.tiles, (loop, sums, depthwise), model.tile_latency)


@dataclass(frozen=True)
class DepthwisePointwiseWork:
    """A depthwise convolution to local memory, then a pointwise one from there.

    depthwise_items: of ``columns`` columns each, that a work-item computes. rounds: of warp tiles that a warp computes
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

    def demand(self, target: Target) -> Demand:
        """Weights that fit into registers are loaded while the depthwise convolution computes."""
        model, costs = target.cost_model, UNIT.costs
        depthwise = self.depthwise_items * self.columns * costs.depthwise_vec4_cycles
        loading = (
            load_cycles(self.operands, 0, self.weight_blocks),
            part_product_cycles(self.operands, self.weight_blocks),
        )
        if self.rounds == 1 and self.batches == 1:
            both = Phase(1, (depthwise, *loading)), Phase(self.k_steps, (costs.local_k_step_latency,))
        else:
            waiting = self.rounds * self.batches * model.batch_latency
            both = Phase(1, (depthwise,)), Phase(1, loading, waiting)
        sums = split_sum(self.split_k, 2 * self.column_blocks, target)
        return Demand(self.tiles, (*both, sums), model.tile_latency)


@dataclass(frozen=True)
class DiagonalWork:
    """A depthwise convolution as products by diagonal matrices: the vec4s that a lane loads and stores.

    parts, has_whole_image: as of :class:`tflgpu.kernels.gpu.excite_kernel.SummingWork`.
    """

    tiles: int
    parts: int
    has_whole_image: bool
    vec4s: int

    def demand(self, target: Target) -> Demand:
        """Return the demand. Caches serve one warp after another. Work-groups of launches hide what others wait for."""
        busy = target.local_size // UNIT.lanes * self.vec4s * UNIT.costs.diagonal_vec4_cycles
        resident = self.tiles if target.executor == "launch" else 1
        return Demand(self.tiles, (Phase(1, (busy,)),), target.cost_model.tile_latency, resident)


def gating_cycles(image: Storage, hidden: int, target: Target) -> float:
    """Cycles in which a work-group adds up a hidden layer of many shares and computes the gates of an image."""
    model = target.cost_model
    slices = tile_count(hidden, LANES)
    shares = groups_at_once(target) * slices * VEC4_BYTES
    weights = slices * LANES * LANES * image.slices * ITEM_BYTES[target.storage]
    return 2 * model.batch_latency + (shares + weights) / model.shared_weight_bytes


def squeezing_cycles(channels: int, hidden: int, target: Target) -> float:
    """Cycles in which each work-group computes a hidden layer of the means of all channels, beside sums of tiles."""
    model = target.cost_model
    return 2 * model.batch_latency + hidden * channels * ITEM_BYTES[target.storage] / model.shared_weight_bytes
