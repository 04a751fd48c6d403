"""Measurements of a device, and the cost model that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, inf, isfinite, log10
from typing import Literal

from tflgpu.target.target import VEC4_BYTES, CostModel, Target

# The E12 series of preferred numbers (IEC 60063): each is 1.2 times the one before, so a value is at most 10% off.
PREFERRED = (1.0, 1.2, 1.5, 1.8, 2.2, 2.7, 3.3, 3.9, 4.7, 5.6, 6.8, 8.2, 10.0)
# The E24 series, for the rates of tiles as parts of the best one's. Planning compares these with each other, and what
# disturbs a measurement mostly disturbs all of them.
PARTS = (*PREFERRED, 1.1, 1.3, 1.6, 2.0, 2.4, 3.0, 3.6, 4.3, 5.1, 6.2, 7.5, 9.1)

LOADS_AT_ONCE = 4  # k-steps whose loads are under way together


@dataclass(frozen=True)
class ProbeConvolution:
    """A convolution: pixels and slices of a work-item, split-K, kernel, work-groups, their size, all products."""

    pixels: int
    slices: int
    split_k: int
    kernel: str
    groups: int
    local_size: int
    products: int


@dataclass(frozen=True, kw_only=True)
class ProbeProgram:
    """The OpenCL C that measures a device, and what its kernels do.

    group: work-items of a work-group. widths: of the vectors that multiply_add_float4 and its relatives multiply with,
    ``chains`` of them in each step; half: whether there are multiply_add_half4 and its relatives. loads: vec4s that
    read_cached and read_local load in each step. local, grid_barriers, matrix_units: whether there are read_local
    and exchange, meet, and multiply_matrices.
    """

    source: str
    group: int
    widths: tuple[int, ...]
    chains: int
    convolutions: tuple[ProbeConvolution, ...]
    loads: int
    half: bool
    local: bool
    grid_barriers: bool
    matrix_units: bool


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Measurements of a device. Rates are a second and of the whole device, times are seconds.

    compute_units, clock: cores or multiprocessors, and their cycles a second, as the device reports them.
    float_macs, half_macs, matrix_macs: multiply-adds in float, in half arithmetic, and on tensor cores; 0 where the
        device has none. vector_width: of the vectors that are the best for float.
    tile_products: (pixels, slices, 4 x 4 products) of a large pointwise convolution in each size of tile.
        split_products: with the largest, if two work-items share each; 0 where there is no local memory.
    global_bytes: of a copy that no cache holds, reads and writes. shared_bytes, cached_bytes: read by all compute units
        from the same 1 MiB, and from 8 KiB. local_bytes: read from local memory; 0 where there is too little.
    memory_latency: of a load from global memory that nothing foresees. exchange: of a write to local memory, a read of
        another work-item's, and two barriers; 0 as above. launch: from one launch to the next in a queue.
        round_trip: from a launch to its end, seen by the host. grid_barrier: of all compute units within a launch; 0
        where it was not measured.
    lockstep: work-items that run in step, as the compiler of the probes says.
    seconds: what measuring took.
    """

    compute_units: int
    clock: float
    float_macs: float
    half_macs: float
    matrix_macs: float
    vector_width: int
    tile_products: tuple[tuple[int, int, float], ...]
    split_products: float
    global_bytes: float
    shared_bytes: float
    cached_bytes: float
    local_bytes: float
    memory_latency: float
    exchange: float
    launch: float
    round_trip: float
    grid_barrier: float
    lockstep: int
    seconds: float

    @property
    def is_sound(self) -> bool:
        """Whether a cost model can be made of it."""
        rates = self.compute_units, self.clock, self.float_macs, self.cached_bytes, self.shared_bytes
        tiles = {(pixels, slices): measured for pixels, slices, measured in self.tile_products} or {(0, 0): 0.0}
        needed = *rates, tiles.get((1, 1), 0.0), *tiles.values(), self.memory_latency, self.launch, self.lockstep
        optional = self.split_products, self.local_bytes, self.exchange, self.grid_barrier
        return min(needed) > 0 and min(optional) >= 0 and all(map(isfinite, needed + optional))


def preferred(value: float, numbers: Sequence[float] = PREFERRED) -> float:
    """Return the nearest preferred number to a positive one. Two measurements of the same mostly have the same.

    Args:
        value: Any positive number.
        numbers: The preferred numbers from 1 to 10.
    """
    decade = 10.0 ** floor(log10(value))
    return float(f"{min(numbers, key=lambda number: abs(number - value / decade)) * decade:.2g}")


def with_costs(target: Target, probes: Probes | None) -> Target:
    """Return the target with the costs that were measured of it; unchanged for kernels of CPUs.

    Args:
        target: The device.
        probes: Its measurements; None leaves the target unchanged.
    """
    if probes is None or target.family != "gpu":
        return target
    return replace(target, cost_model=cost_model_from(probes, target.arithmetic))


def cost_model_from(probes: Probes, arithmetic: Literal["float", "half"] = "float") -> CostModel:
    """Return the costs of a device by its measurements, in cycles of its clock.

    Args:
        probes: The measurements.
        arithmetic: The type in which products are computed, see :class:`tflgpu.target.Target`.
    """
    faster = probes.half_macs / probes.float_macs if arithmetic == "half" and probes.half_macs else 1.0

    def rate(of_device: float, size: int) -> float:
        """Return the rate of a compute unit in a cycle, in units of ``size``."""
        return preferred(of_device / probes.compute_units / probes.clock / size)

    def cycles(seconds: float) -> float:
        return preferred(seconds * probes.clock)

    products = {(pixels, slices): measured for pixels, slices, measured in probes.tile_products}
    most = max(products.values())
    best = rate(faster * most, 1)

    def tile_rate(measured: float) -> float:
        return float(f"{best * preferred(measured / most, PARTS):.3g}")

    return CostModel(
        tile_latency=cycles(2 * probes.memory_latency),  # of the first load, and of what waits for the last
        k_step_latency=cycles(probes.memory_latency / LOADS_AT_ONCE),
        batch_latency=cycles(probes.memory_latency),
        loaded_vec4s=rate(2 * products[1, 1], 1),  # that wait for the loads of two vec4s each
        products=best,
        tile_products=tuple((*tile, tile_rate(measured)) for tile, measured in products.items()),
        splitting=preferred(max(1.0, products[max(products)] / (probes.split_products or inf))),
        reduction_latency=cycles(probes.exchange or 2 * probes.memory_latency),
        local_vec4s=rate(probes.local_bytes or probes.cached_bytes, VEC4_BYTES),
        shared_weight_bytes=rate(probes.shared_bytes, 1),
        launch_latency=cycles(probes.launch),
        interval_latency=cycles(probes.grid_barrier or 2 * probes.memory_latency),
        lockstep=probes.lockstep,
    )
