"""The numbers that turn counted work into cycles, of tensor cores and of a CPU's core."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tflgpu.target.target import measured_costs


@dataclass(frozen=True, kw_only=True)
class RingCosts:
    """Costs of convolutions whose operands pass through a ring of stages in local memory.

    macs, local_bytes, l2_bytes, stored_bytes: per cycle of a compute unit, as kernels reach them.
    tile_latency: of a tile without any k-step. copy_latency: until a copy to local memory is there. barrier_latency: of
        the barrier of one stage. While one work-group waits for these, others of the compute unit work.
    """

    macs: float
    local_bytes: float
    l2_bytes: float
    stored_bytes: float
    tile_latency: float
    copy_latency: float
    barrier_latency: float


@dataclass(frozen=True, kw_only=True)
class PatchCosts:
    """Costs of convolutions all of whose taps read one copy of the image in local memory.

    units: tensor cores of a compute unit. macs: of one of them in a cycle. local_bytes, l2_bytes: per cycle of a
        compute unit, as kernels reach them. barrier_latency: as of :class:`RingCosts`.
    """

    units: int
    macs: float
    local_bytes: float
    l2_bytes: float
    barrier_latency: float


@dataclass(frozen=True, kw_only=True)
class AttentionCosts:
    """Costs of attention in a kernel of its own, beside those of :class:`RingCosts`.

    score_cycles: of a score's softmax: ten operations of 128 lanes, and two of them in a quarter of the lanes.
    chain_latency: of an iteration, whose first product, softmax and second product wait for each other.
    """

    score_cycles: float
    chain_latency: float


@dataclass(frozen=True, kw_only=True)
class TensorCoreCosts:
    """Costs of kernels on tensor cores, in cycles of the compute unit that these belong to.

    pixel_block_cycles, weight_block_cycles: of the caches, for one block of 16 x 16 operands that a warp loads: pixels
        come from four slices, weights are 512 bytes in a row.
    depthwise_vec4_cycles: of a vec4 of a depthwise result that each work-item computes from global memory.
    depthwise_row_vec4_cycles: the same from local memory.
    diagonal_vec4_cycles: of the caches, for a vec4 that each lane of a warp loads or stores in a depthwise convolution
        by diagonal matrices.
    local_k_step_latency: of a k-step whose operands are in registers and in local memory.
    part_product_cycles: of a product of parts of floats, of two blocks of 16 x 16.
    row_product_cycles: of a product with 8 pixels of a row in local memory.
    """

    pixel_block_cycles: float
    weight_block_cycles: float
    depthwise_vec4_cycles: float
    depthwise_row_vec4_cycles: float
    diagonal_vec4_cycles: float
    local_k_step_latency: float
    part_product_cycles: float
    row_product_cycles: float
    ring: RingCosts
    row_ring: RingCosts
    patch: PatchCosts
    attention: AttentionCosts


@cache
def tensor_core_costs(name: str) -> TensorCoreCosts:
    """Return the costs of tensor cores of a kind.

    Args:
        name: The kind, which :attr:`tflgpu.target.Target.matrix_unit` names.
    """
    costs = measured_costs(name)
    parts = {"ring": RingCosts, "row_ring": RingCosts, "patch": PatchCosts, "attention": AttentionCosts}
    return TensorCoreCosts(**{**costs, **{name: kind(**costs[name]) for name, kind in parts.items()}})


@dataclass(frozen=True, kw_only=True)
class ProductRates:
    """Products of vectors of 16 lanes that a CPU's core does in a cycle.

    convolution: of a convolution in a kernel of its own. band: of one in bands, by the vectors of a block of channels:
        1, 2.
    depthwise, strided: of a depthwise one that reads an image in PHWC4, of neighbouring pixels or of others.
        row: of one that reads rows with 16 channels of a pixel side by side.
    quads: what a product in quads takes of one against vectors of output channels, of floats and of halves.
    """

    convolution: float
    band: tuple[float, float]
    depthwise: float
    strided: float
    row: float
    quads: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class CoreCosts:
    """Costs in cycles of a CPU's core.

    wide, narrow: rates of products where a register holds 16 floats, and where it holds fewer.
    uneven: part of what a core's last tile costs that counts once more, because cores do not end together.
    near_bytes, far_bytes: in a cycle, to and from the cache of a core, and to and from what is beyond it.
    foreign_bytes: in a cycle, of what another core has written.
    memory_bytes: in a cycle, of what no cache has.
    unpacking: to make floats of a vector register of halves, of whole numbers of 8 bits and of 4 bits.
    block_pixels: what a block of pixels costs beside these, in pixels.
    part_pixels: what it costs to store a part of a block, in pixels.
    packing_columns: what it takes to pack an element of an image, in products.
    storing_products: what it takes to store a sum that waited in memory, in products.
    """

    wide: ProductRates
    narrow: ProductRates
    uneven: float
    near_bytes: float
    far_bytes: float
    foreign_bytes: float
    memory_bytes: float
    unpacking: tuple[float, float, float]
    block_pixels: float
    part_pixels: float
    packing_columns: float
    storing_products: float


@cache
def core_costs() -> CoreCosts:
    """Return the costs of a CPU's core."""
    costs = measured_costs("cpu")
    return CoreCosts(**{**costs, **{name: ProductRates(**costs[name]) for name in ("wide", "narrow")}})
