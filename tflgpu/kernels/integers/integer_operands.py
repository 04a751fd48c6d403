"""Operands of products of integers: quantized weights, rows quantized at run time, and patches of images.

A rectangle sees a patch of the image. Pixels that are a stride apart are neighbours in a packed patch: it has planes of
rows by columns. So the pixels that the windows of a row of the output see at one tap are neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.kernels.convolutions import is_vector_product
from tflgpu.kernels.cpu import VECTOR
from tflgpu.kernels.cpu.block_products import BLOCKS, weights_cycles
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.convolution import Convolution, output_channel_axis
from tflgpu.ops.image.window import Window
from tflgpu.target.corrections import corrected
from tflgpu.target.kernel_numbers import kernel_numbers
from tflgpu.target.measured_costs import core_costs

# Greatest magnitude of an 8-bit integer less its zero point, if both have 8 bits.
MOST = 255


@dataclass(frozen=True)
class WholeWeights:
    """Weights [out, kh, kw, in] as integers, and the scale of each output channel."""

    integers: Array
    scale: Array


def whole_weights(request: Request) -> WholeWeights | None:
    """Return the weights of a convolution or a fully connected layer, if they are integers by one scale a channel."""
    weights, out = request.graph[request.node.inputs[1]], request.output.channels
    axis = output_channel_axis(request.node)
    elements = weights.data if weights.scale is not None else None
    if elements is None or weights.scale is None or axis is None or weights.shape[axis] != out:
        return None
    scale = np.asarray(weights.scale, np.float64)
    along = scale.shape[axis - elements.ndim :][:1]
    if scale.size not in (1, out) or scale.size != max(along, default=1) or not (scale > 0).all():
        return None
    scale = np.broadcast_to(scale.reshape(-1), (out,))
    data = np.moveaxis(elements, axis, 0)
    data = data.reshape(out, *(data.shape[1:] if data.ndim == 4 else (1, 1, -1)))
    integers = np.rint(data / scale.reshape(-1, 1, 1, 1))
    if np.abs(integers).max(initial=0) > MOST:
        return None
    return WholeWeights(integers.astype(np.int16), scale)


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


DYNAMIC_NUMBERS = kernel_numbers("integers/dynamic_range", DynamicNumbers)


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
    quantizing = rows * depth * column_tiles * DYNAMIC_NUMBERS.quantizing_instructions / 2 / target.limits.vector_width
    kernel, most = "integers of dynamic range", DYNAMIC_NUMBERS.most_time
    if has_rows_of_images(request):
        kernel = f"{kernel}, {'one row' if rows == 1 else 'several rows'}"
        most = DYNAMIC_NUMBERS.most_time_of_far_rows if _are_far(request, 8) else DYNAMIC_NUMBERS.most_time_of_rows
    return max(corrected(kernel, multiplying, floats), loading) + quantizing < most * floats


def _are_far(request: Request, bits: int) -> bool:
    """Whether the caches of all cores lack room for the model's constants of ``bits`` each, which are floats here."""
    return not request.target.caches_hold(request.graph.constant_bytes * bits // 32)


@dataclass(frozen=True, kw_only=True)
class PatchNumbers:
    """Numbers of rectangles of outputs, whose windows see one packed patch.

    Attributes:
        most_positions: Positions of a rectangle: their sums are in a core's first cache.
        least_columns: Columns of a rectangle, unless the output is narrower: short rows cost more to pack.
        row_cycles: Cycles to pack a row of a plane.
        pixel_cycles: Cycles to pack each of its pixels.
    """

    most_positions: int
    least_columns: int
    row_cycles: int
    pixel_cycles: float


PATCH_NUMBERS = kernel_numbers("integers/patches", PatchNumbers)


@dataclass(frozen=True)
class Planes:
    """The planes of a patch along one axis, of ``length`` pixels each.

    first: the first pixel of each, from that of the patch on. taps: of each tap its plane, and its first pixel there.
    """

    first: tuple[int, ...]
    length: int
    taps: tuple[tuple[int, int], ...]


def planes_of(extent: int, kernel: int, stride: int, dilation: int) -> tuple[Planes, Planes]:
    """Return the planes for ``extent`` outputs of an axis: one of each remainder by the stride, or one of each tap."""
    places = [tap * dilation for tap in range(kernel)]
    remainders = sorted({place % stride for place in places})
    taps = tuple((remainders.index(place % stride), place // stride) for place in places)
    shared = Planes(tuple(remainders), extent + places[-1] // stride, taps)
    return shared, Planes(tuple(places), extent, tuple((tap, 0) for tap in range(kernel)))


@dataclass(frozen=True)
class Patch:
    """A rectangle of ``run_rows`` by ``run_columns`` of the output, and the planes of the patch that it sees."""

    run_rows: int
    run_columns: int
    rows: Planes
    columns: Planes

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return len(self.rows.taps) * len(self.columns.taps)

    @property
    def positions(self) -> int:
        """From the first pixel of the output to the last one, in a plane."""
        return (self.run_rows - 1) * self.columns.length + self.run_columns

    @property
    def slice_pixels(self) -> int:
        """Pixels of a slice of a packed patch."""
        return self.slice_rows * self.columns.length

    @property
    def slice_rows(self) -> int:
        """Rows of all planes of a slice."""
        return len(self.rows.first) * self.rows.length * len(self.columns.first)

    def packing_cycles(self, slices: int) -> float:
        """In which a core packs ``slices`` slices."""
        return slices * self.slice_rows * (PATCH_NUMBERS.row_cycles + PATCH_NUMBERS.pixel_cycles * self.columns.length)

    def offsets(self, slices: int) -> Array:
        """Pixels from a packed patch's first one to that of its first window: [slice][row of taps][tap]."""
        columns = self.columns
        taps = [
            ((row_plane * len(columns.first) + plane) * self.rows.length + y) * columns.length + x
            for (row_plane, y), (plane, x) in product(self.rows.taps, columns.taps)
        ]
        every: Array = np.arange(slices)[:, None] * self.slice_pixels + np.array(taps)
        return every


@cache
def best_patch(window: Window, height: int, width: int, slices: int, rows: int, cycles_of_block: float) -> Patch:
    """Return the rectangles that take the least time for an output of ``height`` x ``width``.

    rows: of a block of sums, whose products take ``cycles_of_block`` cycles, with all output channels.
    """

    def cycles(patch: Patch) -> float:
        runs = tile_count(height, patch.run_rows) * tile_count(width, patch.run_columns)
        return runs * (tile_count(patch.positions, rows) * cycles_of_block + patch.packing_cycles(slices))

    most_parts = tile_count(width, PATCH_NUMBERS.least_columns)
    patches = (
        Patch(run_rows, run_columns, row_planes, column_planes)
        for run_columns in {tile_count(width, parts): None for parts in range(1, most_parts + 1)}
        for run_rows in range(1, min(height, max(1, PATCH_NUMBERS.most_positions // run_columns)) + 1)
        for row_planes in planes_of(run_rows, window.kernel[0], window.stride[0], window.dilation[0])
        for column_planes in planes_of(run_columns, window.kernel[1], window.stride[1], window.dilation[1])
    )
    return min((patch for patch in patches if patch.positions <= PATCH_NUMBERS.most_positions), key=cycles)
