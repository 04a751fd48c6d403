"""What the work of kernels costs on a CPU, in cycles of a core.

The constants were measured on two cores of an AMD EPYC 9005 (48 KiB, 1 MiB and 32 MiB of caches) with Intel's runtime.
Only ratios matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.kernel import Storage
from tflgpu.target import Target

# Products of vectors of 16 lanes in a cycle, of 2 that the core can do: in a convolution by itself, and in bands by the
# vectors of a block of channels; in a depthwise one that reads an image in PHWC4, or rows with 16 channels of a pixel
# side by side.
CONVOLUTION_PRODUCTS = 1.7
BAND_PRODUCTS = {1: 1.5, 2: 1.7}
DEPTHWISE_PRODUCTS = 0.5
ROW_PRODUCTS = 1.2

# Bytes in a cycle to and from the cache of a core, and to and from what lies behind it.
NEAR_BYTES = 48
FAR_BYTES = 20


@dataclass(frozen=True)
class BandWork:
    """The tiles of a band kernel, and what each of them does.

    vectors: of a block of channels. convolution_products, depthwise_products: of vectors. workspace: float4 elements.
    """

    tiles: int
    vectors: int
    convolution_products: int
    depthwise_products: int
    workspace: int


def band_cycles(work: BandWork, target: Target, depthwise_rate: float) -> float:
    """Cycles of a convolution and a depthwise one in bands. depthwise_rate: products in a cycle.

    The last tile begins when all others have begun, and may then be alone: half of what it costs counts once more.
    """
    tile = work.convolution_products / BAND_PRODUCTS[work.vectors] + work.depthwise_products / depthwise_rate
    return tile * (work.tiles + (target.compute_units - 1) / 2) / target.compute_units


def pair_cycles(work: BandWork, between: Storage, target: Target) -> float:
    """Cycles of the two kernels in place of one. work: of bands of all rows. between: what the first of them writes."""
    convolution = work.convolution_products / CONVOLUTION_PRODUCTS
    depthwise = work.depthwise_products / DEPTHWISE_PRODUCTS
    share = between.bytes / target.compute_units
    rate = NEAR_BYTES if share <= target.limits.cache_bytes else FAR_BYTES
    computing = work.tiles * (convolution + depthwise) / target.compute_units
    return computing + 2 * share / rate + target.cost_model.next_kernel(target.executor)
