"""What the work of kernels costs on a CPU, in cycles of a core.

The constants were measured on two cores of an AMD EPYC 9005 (48 KiB, 1 MiB and 32 MiB of caches) with Intel's runtime.
Only ratios matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.window import Window
from tflgpu.target import Target

# Products of vectors of 16 lanes in a cycle, of 2 that the core can do: in a convolution by itself, and in bands by the
# vectors of a block of channels; in a depthwise one that reads an image in PHWC4, neighbouring pixels or with others
# between them, or rows with 16 channels of a pixel side by side.
CONVOLUTION_PRODUCTS = 1.7
BAND_PRODUCTS = {1: 1.5, 2: 1.7}
DEPTHWISE_PRODUCTS = 0.7
STRIDED_PRODUCTS = 0.3
ROW_PRODUCTS = 1.2

# Cores do not end together: so much of what their last tiles cost counts once more.
UNEVEN = 0.2

# Bytes in a cycle to and from the cache of a core, and to and from what lies behind it.
NEAR_BYTES = 48
FAR_BYTES = 20

# Bytes in a cycle of what another core has written: about 20 where the two share a cache, few where they do not.
FOREIGN_BYTES = 10


@dataclass(frozen=True)
class BandWork:
    """The tiles of a band kernel, and what each of them does.

    vectors: of a block of channels. convolution_products, depthwise_products: of vectors. workspace: float4 elements.
    image: bytes of the image, if tiles read all its rows: a core then reads what others have written, while in bands it
    reads what it has written itself. before: tiles that do more, and begin before these; as many for each core.
    """

    tiles: int
    vectors: int
    convolution_products: int
    depthwise_products: int
    workspace: int
    image: int = 0
    before: BandWork | None = None


def band_cycles(work: BandWork, target: Target, depthwise_rate: float) -> float:
    """Cycles of a convolution and a depthwise one in bands, of the core with the most tiles.

    depthwise_rate: products in a cycle.
    """
    rounds = tile_count(work.tiles, target.compute_units) + UNEVEN
    before = work.before
    earlier = before.tiles / target.compute_units * _tile_cycles(before, depthwise_rate) if before else 0
    return earlier + rounds * _tile_cycles(work, depthwise_rate) + _foreign_cycles(before or work, target)


def _tile_cycles(work: BandWork, depthwise_rate: float) -> float:
    return work.convolution_products / BAND_PRODUCTS[work.vectors] + work.depthwise_products / depthwise_rate


def _foreign_cycles(work: BandWork, target: Target) -> float:
    return work.image * (1 - 1 / target.compute_units) / FOREIGN_BYTES


def depthwise_rate(window: Window) -> float:
    """Products in a cycle of a depthwise convolution of an image in PHWC4."""
    return DEPTHWISE_PRODUCTS if window.stride[1] == 1 else STRIDED_PRODUCTS


def pair_cycles(work: BandWork, between: Storage, rate: float, target: Target) -> float:
    """Cycles of the two kernels in place of one.

    work: of bands of all rows. between: what the first of them writes. rate: the depthwise one's products in a cycle.
    """
    convolution = work.convolution_products / CONVOLUTION_PRODUCTS
    depthwise = work.depthwise_products / rate
    share = between.bytes / target.compute_units
    bytes_in_cycle = NEAR_BYTES if share <= target.limits.cache_bytes else FAR_BYTES
    computing = work.tiles * (convolution + depthwise) / target.compute_units + _foreign_cycles(work, target)
    return computing + 2 * share / bytes_in_cycle + target.cost_model.next_kernel(target.executor)
