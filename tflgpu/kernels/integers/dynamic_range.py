"""Models of dynamic range: when the rows of a product are quantized at run time, to be multiplied as integers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tflgpu.kernels.convolutions import is_vector_product
from tflgpu.kernels.cpu import VECTOR
from tflgpu.kernels.cpu.block_products import BLOCKS, weights_cycles
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.convolution import Convolution
from tflgpu.target.corrections import corrected
from tflgpu.target.kernel_numbers import kernel_numbers
from tflgpu.target.measured_costs import core_costs


@dataclass(frozen=True, kw_only=True)
class DynamicNumbers:
    """Numbers by which floats are quantized at run time.

    Attributes:
        quantizing_instructions: Instructions for a register of floats, of which two begin in a cycle: its least and
            greatest element, then integers.
        most_time: Part of the time of floats, for which integers are chosen: to save less is not worth the digits.
        most_time_of_rows: The same of layers, whose rows of any number are quantized, so that signatures share weights.
        most_time_of_far_rows: The same where weights are far: both kinds of products wait for memory.
    """

    quantizing_instructions: int
    most_time: float
    most_time_of_rows: float
    most_time_of_far_rows: float


NUMBERS = kernel_numbers("integers/dynamic_range", DynamicNumbers)


def has_rows_of_images(request: Request) -> bool:
    """Whether the rows of a product are images of one pixel."""
    return request.node.kind == "fully_connected" or is_vector_product(request)


def has_dynamic_rows(request: Request) -> bool:
    """Whether LiteRT quantizes the floats of a product at run time, so that the kernel may do so, too.

    Each row of a layer has a scale of its own, and so has each pixel of a pointwise convolution. With other windows,
    neighbouring pixels of the output have the scale of what they see together. LiteRT has one for a whole image, which
    is at least as large.
    """
    attributes, src, target = request.node.attributes, request.input(0), request.target
    if not request.graph[request.node.inputs[1]].dynamic or target.arithmetic == "half":
        return False
    if src.grid is not None or src.linear or src.type not in ("float", "half"):
        return False
    if isinstance(attributes, Convolution):
        return attributes.groups == 1
    return request.node.kind == "fully_connected"


def dynamic_pays(request: Request, multiplying: float, column_tiles: int, weight_bytes: int) -> bool:
    """Whether to quantize the rows of a product, and to multiply integers, is much faster than to multiply floats.

    multiplying: cycles of the products of integers. column_tiles: tiles of the same rows, each of which quantizes them.
    weight_bytes: of a packed weight.
    """
    target, g = request.target, request.output.geometry
    weights = request.graph[request.node.inputs[1]].shape
    depth, rows = prod(weights[1:]), g.batch * g.plane
    registers = VECTOR // target.limits.vector_width
    if has_rows_of_images(request):
        blocks = tile_count(rows, BLOCKS.most_rows)
        vector = min(weights_cycles(bits, rows, blocks, target, far=_are_far(request, bits)) for bits in (32, 8))
    else:
        vector = rows * registers / 2
    floats = vector * depth * tile_count(g.channels, VECTOR)
    costs = core_costs()
    bandwidth = costs.memory_bytes if _are_far(request, 8 * weight_bytes) else costs.near_bytes
    loading = depth * g.channels * weight_bytes / bandwidth
    quantizing = rows * depth * column_tiles * NUMBERS.quantizing_instructions / 2 / target.limits.vector_width
    kernel, most = "integers of dynamic range", NUMBERS.most_time
    if has_rows_of_images(request):
        kernel = f"{kernel}, {'one row' if rows == 1 else 'several rows'}"
        most = NUMBERS.most_time_of_far_rows if _are_far(request, 8) else NUMBERS.most_time_of_rows
    return max(corrected(kernel, multiplying, floats), loading) + quantizing < most * floats


def _are_far(request: Request, bits: int) -> bool:
    """Whether the caches of all cores lack room for the model's constants of ``bits`` each, which are floats here."""
    return not request.target.caches_hold(request.graph.constant_bytes * bits // 32)
