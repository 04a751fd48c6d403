"""The work of kernels on CPUs that keep what is between two convolutions in a core's cache, and what it demands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from tflgpu.kernels.cpu import VECTOR
from tflgpu.kernels.demand import Demand, InTurn, Phase
from tflgpu.kernels.kernel import Storage
from tflgpu.ops.image.window import Window
from tflgpu.target import Target
from tflgpu.target.measured_costs import ProductRates, core_costs


@dataclass(frozen=True)
class BandWork:
    """The tiles of a band kernel, and what each of them does.

    vectors: of a block of channels. convolution_products, depthwise_products: of vectors. depthwise_rate: of the
    latter in a cycle. workspace: float4 elements. image: bytes of the image, if tiles read all its rows: a core then
    reads what others have written, while in bands it reads what it has written itself. before: tiles that do more, and
    begin before these, the same number for each core.
    """

    tiles: int
    vectors: int
    convolution_products: int
    depthwise_products: int
    depthwise_rate: float
    workspace: int
    image: int = 0
    before: BandWork | None = None

    def demand(self, target: Target) -> InTurn:
        """Return the demand of both convolutions, which a core computes one after the other."""
        before = self.before
        earlier = before.tiles / target.compute_units * before.tile(target).cycles(1) if before else 0.0
        own = Demand(self.tiles, (self.tile(target),), latency=0.0, uneven=core_costs().uneven)
        foreign = (before or self).foreign_cycles(target)
        return InTurn((_of_each_core(earlier, target), own, _of_each_core(foreign, target)))

    def tile(self, target: Target) -> Phase:
        """Return what a core computes for one tile."""
        rate = product_rates(target).band[self.vectors - 1]
        return Phase(1, (self.convolution_products / rate + self.depthwise_products / self.depthwise_rate,))

    def foreign_cycles(self, target: Target) -> float:
        """In which a core reads what others have written."""
        return self.image * (1 - 1 / target.compute_units) / core_costs().foreign_bytes


@dataclass(frozen=True)
class PairWork:
    """The same two convolutions in a kernel each.

    bands: of all rows. between: what the first kernel writes. depthwise_rate: products in a cycle.
    """

    bands: BandWork
    between: Storage
    depthwise_rate: float

    def demand(self, target: Target) -> InTurn:
        """Return the demand of both kernels. The tensor between them is written and read again."""
        costs, work = core_costs(), self.bands
        rate = product_rates(target).convolution
        tile = work.convolution_products / rate + work.depthwise_products / self.depthwise_rate
        share = counted_bytes(self.between) / target.compute_units
        bytes_in_cycle = costs.near_bytes if share <= target.limits.cache_bytes else costs.far_bytes
        computing = work.tiles * tile / target.compute_units
        waiting = target.cost_model.next_kernel(target.executor)
        parts = computing, work.foreign_cycles(target), 2 * share / bytes_in_cycle, waiting
        return InTurn(tuple(_of_each_core(part, target) for part in parts))


def counted_bytes(storage: Storage) -> int:
    """Return the bytes by which the time that a tensor takes counts: integers on a grid become floats, and count as
    these."""
    return storage.bytes if storage.grid is None else replace(storage, type="float", grid=None).bytes


def _of_each_core(cycles: float, target: Target) -> Demand:
    """Return what keeps every core busy for so long."""
    return Demand(target.compute_units, (Phase(1, (cycles,)),), latency=0.0)


def product_rates(target: Target) -> ProductRates:
    """Return the products that a core does in a cycle, by the floats that its registers hold."""
    return core_costs().wide if target.limits.vector_width >= VECTOR else core_costs().narrow


def depthwise_rate(window: Window, target: Target) -> float:
    """Products in a cycle of a depthwise convolution of an image in PHWC4."""
    rates = product_rates(target)
    return rates.depthwise if window.stride[1] == 1 else rates.strided


def packed_cost(tiles: int, pixels: float, columns: int, products: int, target: Target) -> float:
    """Return what a packed convolution takes on the busiest core, in products of one column. Every tile packs its
    image.

    Args:
        tiles: Of all images.
        pixels: Of a tile, and those that its blocks count as.
        columns: Of a tile, those of whole vectors.
        products: Of an output.
        target: Of the device.
    """
    costs = core_costs()
    of_pixel = products * (columns + costs.packing_columns) + columns * costs.storing_products
    return (ceil(tiles / target.compute_units) + costs.uneven) * pixels * of_pixel


def quads_cost(pixels: float, products: int, halves: bool, target: Target) -> float:
    """Return the same of a convolution by quads.

    Args:
        pixels: That the blocks of all images count as.
        products: Of a pixel.
        halves: Whether these are among its operands.
        target: Of the device.
    """
    return pixels * products * product_rates(target).quads[halves] / target.compute_units
