"""Products of 8-bit integers on CPUs with an integer unit: convolutions and fully connected layers.

An image that is stored as integers is multiplied by the integers of its weights. Sums are exact; each is multiplied by
the scales of both, and then the epilogue is the usual one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from tflgpu.graph.ir import Node
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.convolutions import convolution_macs, is_vector_product
from tflgpu.kernels.cpu.block_products import blocks_per_tile
from tflgpu.kernels.integers import INTEGERS
from tflgpu.kernels.integers.units import UNITS, IntegerUnit
from tflgpu.kernels.integers.whole_weights import MOST, WholeWeights, whole_weights
from tflgpu.kernels.kernel import Argument, Kernel, Parameters, Storage
from tflgpu.kernels.packing import block_inputs, padded_bias, reordered
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import Window
from tflgpu.target import VEC4_BYTES, ElementType

# Rows of a run, about: that many share the loads of the weights.
RUN_ROWS = 36

# Bytes of a part of the depth, packed for a run: it stays in a core's first cache beside the weights. The same of the
# sums that wait for the next part.
PART_BYTES = 16 << 10
SUMS_BYTES = 32 << 10

SUM_BYTES = 4

# Cycles that a block of sums takes beside its products: they are loaded and stored, and a loop begins and ends.
BLOCK_CYCLES = 40

# What sums of products stay within: with a correction and a bias they never overflow.
MOST_SUM = 1 << 30

WORTHWHILE_PRODUCTS = 1 << 20  # of a tile, see WORTHWHILE_OPERATIONS of block_products.py
TILES_PER_CORE = 12


@dataclass(frozen=True, kw_only=True)
class IntegerProductsParameters(Parameters):
    """Parameters of every loader of the skeleton ``templates/integers/packed_products.cl.j2``."""

    function: str
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


def _unit(request: Request, weights: WholeWeights) -> IntegerUnit | None:
    """The unit that multiplies weights of this width; None if there is none, or if sums could exceed 32 bits."""
    unit = UNITS[request.target.integer_unit or ""]
    least, most = int(weights.integers.min(initial=0)), int(weights.integers.max(initial=0))
    if least < -128 or most > 127:
        if unit.wider is None:
            return None
        unit = unit.wider
    products = weights.integers[0].size * MOST * (max(-least, most) + 1)
    return unit if products <= MOST_SUM else None


def reads_row_major(node: Node, src: Storage) -> bool:
    """Whether a convolution reads an image in row-major order, in which a row of a window sees neighbours."""
    attributes = node.attributes
    if not isinstance(attributes, Convolution) or attributes.groups > 1 or attributes.window.dilation[1] > 1:
        return False
    return src.channels <= LANES


def multiplies_integers(request: Request) -> bool:
    """Whether a convolution or a fully connected layer multiplies integers, in blocks of whole groups."""
    return obstacle(request) is None


def obstacle(request: Request) -> str | None:
    """Why a convolution or a fully connected layer multiplies floats; None if it need not."""
    attributes, src = request.node.attributes, request.input(0)
    if src.grid is None or request.value(0) is not None or (src.linear and not reads_row_major(request.node, src)):
        return "the input is not stored as 8-bit integers"
    if request.is_computed(2):
        return "the bias is computed by the model"
    weights = whole_weights(request)
    if weights is None:
        return "the weights are not integers with a scale for each output channel"
    unit = _unit(request, weights)
    if unit is None:
        return "the unit does not multiply weights of 9 bits, or sums could exceed 32 bits"
    if not isinstance(attributes, Convolution) or attributes.groups == 1:
        return None
    per_group = request.output.geometry.channels // attributes.groups
    if per_group % _columns(request, unit)[1] or weights.integers.shape[3] % LANES:
        return "the groups have channels that fill no block"
    return None


def _has_rows_of_images(request: Request) -> bool:
    """Whether the rows of the product are images of one pixel."""
    return request.node.kind == "fully_connected" or is_vector_product(request)


def _rows(request: Request) -> tuple[int, int]:
    """Images that have rows of their own, and how many rows."""
    g = request.output.geometry
    return (1, g.batch) if _has_rows_of_images(request) else (g.batch, g.plane)


def _columns(request: Request, unit: IntegerUnit) -> tuple[tuple[int, int], int]:
    """The shape of a block of sums, in rows and registers, that takes the least time; and its columns."""
    attributes = request.node.attributes
    out = request.output.geometry.channels
    out //= attributes.groups if isinstance(attributes, Convolution) else 1
    rows, weights = _rows(request)[1], request.graph[request.node.inputs[1]]
    quads = tile_count(prod(weights.shape[1:]), LANES)

    def cycles(shape: tuple[int, int]) -> float:
        blocks = tile_count(rows, shape[0]) * tile_count(out, shape[1] * unit.lanes)
        return blocks * (quads * unit.step_cycles(*shape) + BLOCK_CYCLES)

    shape = min(unit.shapes, key=cycles)
    return shape, shape[1] * unit.lanes


@INTEGERS.lowering("convolution", when=multiplies_integers, obstacle=obstacle)
@INTEGERS.lowering("fully_connected", when=multiplies_integers, obstacle=obstacle)
def integer_products(request: Request) -> Kernel:
    """Blocks of rows by output channels, whose operands are packed."""
    target, src, g = request.target, request.input(0), request.output.geometry
    weights, attributes, grid = whole_weights(request), request.node.attributes, src.grid
    assert weights is not None and grid is not None
    unit = _unit(request, weights)
    assert unit is not None
    groups = attributes.groups if isinstance(attributes, Convolution) else 1
    (rows, registers), columns = _columns(request, unit)
    images, all_rows = _rows(request)
    if src.linear:
        assert isinstance(attributes, Convolution)
        weights = _rows_of_windows(weights)
    read = block_inputs(g.channels, groups, columns, Geometry((1, 1, 1, weights.integers.shape[3] * groups)))
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
            function=unit.function,
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


def _rows_of_windows(weights: WholeWeights) -> WholeWeights:
    """The weights for an image in row-major order, as if a window had one column of all the channels in its row."""
    return replace(weights, integers=weights.integers.reshape(*weights.integers.shape[:2], 1, -1))


def _arguments(
    request: Request, weights: WholeWeights, unit: IntegerUnit, columns: int, blocks: int
) -> tuple[tuple[Argument, ...], bool]:
    """Packed weights, corrections, factors and bias, and whether there is such a bias."""
    src, size = request.input(0), blocks * columns
    assert src.grid is not None
    integers = weights.integers
    out, kh, kw, depth = integers.shape
    inputs = tile_count(depth, LANES) * LANES
    padded = np.zeros((size, kh, kw, inputs), np.int16 if unit.weight_bytes == 2 else np.int8)
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
        Argument("weights", "short" if unit.weight_bytes == 2 else "char", None, packed),
        Argument("corrections", "int", None, np.pad(corrections, (0, size - out)).astype(np.int32)),
        Argument("factors", "float", None, padded_bias(factors, size)),
    )
    if adds_bias:
        arguments = (*arguments, Argument("bias", "float", None, padded_bias(bias, size)))
    return arguments, adds_bias
