"""Products of 8-bit integers on CPUs with an integer unit: convolutions and fully connected layers.

An image that is stored as integers is multiplied by the integers of its weights. Sums are exact; each is multiplied by
the scales of both, and then the epilogue is the usual one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.convolutions import convolution_macs, is_vector_product
from tflgpu.kernels.cpu.block_products import blocks_per_tile
from tflgpu.kernels.integers import INTEGERS
from tflgpu.kernels.integers.units import UNITS, IntegerUnit
from tflgpu.kernels.kernel import Argument, Kernel, Parameters, Storage
from tflgpu.kernels.packing import block_inputs, padded_bias, reordered
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.convolution import Convolution, output_channel_axis
from tflgpu.ops.image.window import Window
from tflgpu.target import VEC4_BYTES, ElementType, Target

# Rows of a run, about: that many share the loads of the weights.
RUN_ROWS = 36

# Bytes of a part of the depth, packed for a run: it stays in a core's first cache beside the weights. The same of the
# sums that wait for the next part.
PART_BYTES = 16 << 10
SUMS_BYTES = 32 << 10

SUM_BYTES = 4

# What sums stay within, so that they never overflow: products of 255 by 128, and a correction.
MOST_PRODUCTS = 1 << 15

WORTHWHILE_PRODUCTS = 1 << 20  # of a tile, see WORTHWHILE_OPERATIONS of block_products.py
TILES_PER_CORE = 12


@dataclass(frozen=True, kw_only=True)
class IntegerProductsParameters(Parameters):
    """Parameters of every loader of the skeleton ``templates/integers/packed_products.cl.j2``."""

    rows: int
    registers: int
    columns: int
    run_blocks: int
    column_blocks: int
    out_blocks: int
    steps: int
    part: int
    blocks_per_tile: int
    element: ElementType
    packed_vec4s: int
    offset: int
    adds_bias: bool
    src: Storage


@dataclass(frozen=True, kw_only=True)
class IntegerConvolutionParameters(IntegerProductsParameters, template="integers/integer_convolution"):
    """Parameters of ``templates/integers/integer_convolution.cl.j2``."""

    window: Window
    slices: int
    first_slice: str
    zero: int
    images: int


@dataclass(frozen=True, kw_only=True)
class IntegerFullyConnectedParameters(IntegerProductsParameters, template="integers/integer_layer"):
    """Parameters of ``templates/integers/integer_layer.cl.j2``."""


@dataclass(frozen=True)
class WholeWeights:
    """Weights [out, kh, kw, in] as whole numbers, and the scale of each output channel."""

    integers: Array
    scale: Array


def whole_weights(request: Request) -> WholeWeights | None:
    """The weights of a convolution or a fully connected layer, if they are integers by one scale a channel."""
    weights, out = request.graph[request.node.inputs[1]], request.output.geometry.channels
    if weights.data is None or weights.scale is None or output_channel_axis(request.node) != 0:
        return None
    scale = np.asarray(weights.scale, np.float64)
    if scale.size not in (1, out) or scale.size != max(scale.shape[:1], default=1) or not (scale > 0).all():
        return None
    scale = np.broadcast_to(scale.reshape(-1), (out,))
    data = weights.data.reshape(out, *(weights.shape[1:] if weights.data.ndim == 4 else (1, 1, -1)))
    return WholeWeights(np.rint(data / scale.reshape(-1, 1, 1, 1)), scale)


def _unit(target: Target) -> IntegerUnit:
    return UNITS[target.integer_unit or ""]


def multiplies_integers(request: Request) -> bool:
    """Whether a convolution or a fully connected layer multiplies integers, in blocks of whole groups."""
    return obstacle(request) is None


def obstacle(request: Request) -> str | None:
    """Why a convolution or a fully connected layer multiplies floats; None if it need not."""
    attributes, src = request.node.attributes, request.input(0)
    if src.grid is None or src.linear or request.value(0) is not None:
        return "the input is not stored as 8-bit integers"
    if len(request.node.inputs) > 2 and 2 not in request.node.epilogue_inputs and request.value(2) is None:
        return "the bias is computed by the model"
    weights = whole_weights(request)
    if weights is None:
        return "the weights are not integers with a scale for each output channel"
    if weights.integers.min(initial=0) < -128 or weights.integers.max(initial=0) > 127:
        return "the weights need 9 bits, as their zero point is not 0"
    if weights.integers[0].size > MOST_PRODUCTS:
        return "sums could exceed 32 bits"
    if not isinstance(attributes, Convolution) or attributes.groups == 1:
        return None
    per_group = request.output.geometry.channels // attributes.groups
    if per_group % _columns(request)[1] or weights.integers.shape[3] % LANES:
        return "the groups have channels that fill no block"
    return None


def _has_rows_of_images(request: Request) -> bool:
    """Whether the rows of the product are images of one pixel."""
    return request.node.kind == "fully_connected" or is_vector_product(request)


def _rows(request: Request) -> tuple[int, int]:
    """Images that have rows of their own, and how many rows."""
    g = request.output.geometry
    return (1, g.batch) if _has_rows_of_images(request) else (g.batch, g.plane)


def _columns(request: Request) -> tuple[tuple[int, int], int]:
    """The shape of a block of sums, in rows and registers, that takes the least time; and its columns."""
    unit, attributes = _unit(request.target), request.node.attributes
    out = request.output.geometry.channels
    out //= attributes.groups if isinstance(attributes, Convolution) else 1
    rows = _rows(request)[1]

    def cycles(shape: tuple[int, int]) -> float:
        blocks = tile_count(rows, shape[0]) * tile_count(out, shape[1] * unit.lanes)
        return blocks * unit.step_cycles(*shape)

    shape = min(unit.shapes, key=cycles)
    return shape, shape[1] * unit.lanes


@INTEGERS.lowering("convolution", when=multiplies_integers, obstacle=obstacle)
@INTEGERS.lowering("fully_connected", when=multiplies_integers, obstacle=obstacle)
def integer_products(request: Request) -> Kernel:
    """Blocks of rows by output channels, whose operands are packed."""
    unit, target, src, g = _unit(request.target), request.target, request.input(0), request.output.geometry
    weights, attributes, grid = whole_weights(request), request.node.attributes, src.grid
    assert weights is not None and grid is not None
    groups = attributes.groups if isinstance(attributes, Convolution) else 1
    (rows, registers), columns = _columns(request)
    images, all_rows = _rows(request)
    read = block_inputs(g.channels, groups, columns, src.geometry)
    out_blocks, taps = len(read.first), prod(weights.integers.shape[1:3])
    steps = taps * read.slices
    row_blocks = tile_count(all_rows, rows)
    run_blocks = tile_count(row_blocks, tile_count(row_blocks, max(1, RUN_ROWS // rows)))
    run = run_blocks * rows
    quad_bytes = run * LANES * unit.element_bytes
    part = tile_count(steps, tile_count(steps, max(1, PART_BYTES // quad_bytes)))
    waiting = max(1, SUMS_BYTES // (run * columns * SUM_BYTES)) if part < steps else out_blocks
    runs = tile_count(row_blocks, run_blocks) * images
    cost = run * columns * LANES * steps
    enough = max(1, WORTHWHILE_PRODUCTS // cost)
    column_blocks = min(
        waiting, out_blocks, max(1, tile_count(runs * out_blocks, target.compute_units * TILES_PER_CORE), enough)
    )
    if len(set(read.first)) > 1:  # what is packed for a tile are the channels of one group
        column_blocks = 1
    column_blocks = tile_count(out_blocks, tile_count(out_blocks, column_blocks))
    column_tiles = tile_count(out_blocks, column_blocks)
    per_tile = blocks_per_tile(runs, column_tiles, 2 * cost * column_blocks, target)
    packed_vec4s = tile_count(part * quad_bytes, VEC4_BYTES)
    sums = (column_blocks if part < steps else 1) * run * columns * SUM_BYTES
    arguments, adds_bias = _arguments(request, weights, unit, columns, out_blocks)
    made: Callable[..., IntegerProductsParameters]
    if _has_rows_of_images(request):
        made, macs = IntegerFullyConnectedParameters, g.batch * g.channels * steps * LANES
    else:
        assert isinstance(attributes, Convolution)
        made = partial(
            IntegerConvolutionParameters,
            window=attributes.window,
            slices=read.slices,
            first_slice=read.expression,
            zero=grid.zero - unit.offset,
            images=images,
        )
        macs = convolution_macs(request)
    return Kernel(
        made(
            rows=rows,
            registers=registers,
            columns=columns,
            run_blocks=run_blocks,
            column_blocks=column_blocks,
            out_blocks=out_blocks,
            steps=steps,
            part=part,
            blocks_per_tile=per_tile,
            element="short" if unit.widens else "uchar",
            packed_vec4s=packed_vec4s,
            offset=unit.offset,
            adds_bias=adds_bias,
            src=src,
        ),
        (request.activation("src", 0), *arguments),
        tiles=column_tiles * tile_count(runs, per_tile),
        local_size=1,
        workspace=packed_vec4s + sums // VEC4_BYTES,
        macs=macs,
    )


def _arguments(
    request: Request, weights: WholeWeights, unit: IntegerUnit, columns: int, blocks: int
) -> tuple[tuple[Argument, ...], bool]:
    """Packed weights, corrections, factors and bias, and whether there is such a bias."""
    src, size = request.input(0), blocks * columns
    assert src.grid is not None
    integers = weights.integers.astype(np.int8)
    out, kh, kw, depth = integers.shape
    inputs = tile_count(depth, LANES) * LANES
    padded = np.zeros((size, kh, kw, inputs), np.int8)
    padded[:out, ..., :depth] = integers
    split = padded.reshape(blocks, columns, kh * kw * inputs // LANES, LANES // unit.inputs, unit.inputs)
    packed = reordered(split.transpose(0, 2, 3, 1, 4))
    zero = src.grid.zero - unit.offset
    corrections = -zero * integers.reshape(out, -1).sum(axis=1, dtype=np.int64)
    factors = src.grid.scale * weights.scale
    bias = request.optional_constant(2)
    adds_bias = bias is not None
    if bias is not None:
        whole = np.rint(bias.reshape(-1).astype(np.float64) / factors)
        close = np.abs(whole * factors - bias.reshape(-1)) <= 1e-6 * np.abs(bias.reshape(-1))
        if close.all() and np.abs(whole).max(initial=0) < 1 << 29:
            corrections, adds_bias = corrections + whole.astype(np.int64), False
    arguments: tuple[Argument, ...] = (
        Argument("weights", "char", None, packed),
        Argument("corrections", "int", None, _padded(corrections, size, np.int32)),
        Argument("factors", "float", None, _padded(factors, size, np.float32)),
    )
    if adds_bias:
        arguments = (*arguments, Argument("bias", "float", None, padded_bias(bias, size)))
    return arguments, adds_bias


def _padded(values: Array, size: int, dtype: type) -> Array:
    result: Array = np.zeros(size, dtype)
    result[: values.size] = values
    return result
