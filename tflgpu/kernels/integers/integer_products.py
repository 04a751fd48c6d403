"""Products of 8-bit integers on CPUs with an integer unit: convolutions and fully connected layers.

An image that is stored as integers is multiplied by the integers of its weights. Sums are exact; each is multiplied by
the scales of both, and then the epilogue is the usual one. Of a model of dynamic range, each row of floats is quantized
where it is packed, with a scale of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, prod

import numpy as np

from tflgpu.graph.ir import Array, Node
from tflgpu.graph.layout import LANES, Geometry, Size
from tflgpu.kernels.convolutions import convolution_macs
from tflgpu.kernels.cpu.block_products import blocks_per_tile
from tflgpu.kernels.integers import INTEGERS
from tflgpu.kernels.integers.integer_operands import (
    MOST,
    Patch,
    WholeWeights,
    best_patch,
    dynamic_pays,
    has_dynamic_rows,
    has_rows_of_images,
    whole_weights,
)
from tflgpu.kernels.integers.units import UNITS, IntegerUnit
from tflgpu.kernels.kernel import Argument, Kernel, Parameters, Storage
from tflgpu.kernels.packing import BlockInputs, block_inputs, inputs_of_blocks, padded_bias, reordered
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import even_part, local_vec4s, tile_count
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import Window
from tflgpu.target import ITEM_BYTES, VEC4_BYTES, ElementType
from tflgpu.target.kernel_numbers import kernel_numbers


@dataclass(frozen=True, kw_only=True)
class ProductNumbers:
    """Numbers of products of integers, and of their tiles.

    Attributes:
        run_rows: Rows, about, that share the loads of the weights.
        part_bytes: Bytes of a part of the depth, packed for a run: a core's first cache has it beside the weights.
        sums_bytes: The same of the sums that wait for the next part.
        most_packing: Part of the time of products that packing may take, if there are enough tiles.
        block_cycles: Cycles that a block of sums takes beside its products: they are loaded and stored, and a loop
            begins and ends.
        least_products: Products that are worth starting a tile.
        tiles_per_core: Tiles for each core, about, so that no core waits for long.
        dynamic_tiles_per_core: The same of a product of floats: each tile quantizes the rows of its runs.
    """

    run_rows: int
    part_bytes: int
    sums_bytes: int
    most_packing: float
    block_cycles: int
    least_products: int
    tiles_per_core: int
    dynamic_tiles_per_core: int


NUMBERS = kernel_numbers("integers/products", ProductNumbers)


# Bound of sums of products: with a correction and a bias they never overflow.
MOST_SUM = 1 << 30


# Numbers that are kept for the grid of each row that is quantized at run time; the template of the skeleton lists them.
GRID_NUMBERS = 3


@dataclass(frozen=True, kw_only=True)
class IntegerProductsParameters(Parameters):
    """Parameters of every loader of the skeleton ``templates/integers/packed_products.cl.j2``."""

    function: str
    parts: int
    inputs: int
    rows: int
    registers: int
    columns: int
    run: Size
    runs: Size
    column_blocks: Size
    out_blocks: Size
    steps: Size
    part: Size
    blocks_per_tile: Size
    element: ElementType
    packed_vec4s: Size
    sums_vec4s: Size
    dynamic: bool
    offset: int
    adds_bias: bool
    src: Storage


@dataclass(frozen=True, kw_only=True)
class IntegerWindowParameters(IntegerProductsParameters):
    """Parameters of the loaders of convolutions."""

    window: Window
    first_slice: str
    zero: int
    images: Size


@dataclass(frozen=True, kw_only=True)
class IntegerConvolutionParameters(IntegerWindowParameters, template="integers/integer_convolution", stores_once=True):
    """Parameters of ``templates/integers/integer_convolution.cl.j2``."""

    slices: Size
    in_place: bool


@dataclass(frozen=True, kw_only=True)
class IntegerPatchesParameters(IntegerWindowParameters, template="integers/integer_patches", stores_once=True):
    """Parameters of ``templates/integers/integer_patches.cl.j2``."""

    patch: Patch


@dataclass(frozen=True, kw_only=True)
class IntegerFullyConnectedParameters(IntegerProductsParameters, template="integers/integer_layer", stores_once=True):
    """Parameters of ``templates/integers/integer_layer.cl.j2``."""


def _unit(request: Request, weights: WholeWeights) -> IntegerUnit | None:
    """Return the unit that multiplies weights of this width; None if there is none, or if sums could exceed 32 bits."""
    unit = UNITS[request.target.integer_unit or ""]
    least, most = int(weights.integers.min(initial=0)), int(weights.integers.max(initial=0))
    if least < -128 or most > 127:
        if unit.wider is None:
            return None
        unit = unit.wider
    products = weights.integers[0].size * MOST * (max(-least, most) + 1)
    return unit if products <= MOST_SUM else None


def reads_row_major(node: Node, src: Storage) -> bool:
    """Whether a product reads its input in row-major order: rows of whole vec4s, or those that windows see."""
    attributes = node.attributes
    if node.kind == "fully_connected":
        return src.channels % LANES == 0
    if not isinstance(attributes, Convolution) or attributes.groups > 1 or attributes.window.dilation[1] > 1:
        return False
    return src.channels <= LANES


def multiplies_integers(request: Request) -> bool:
    """Whether a convolution or a fully connected layer multiplies integers, in blocks of whole groups."""
    return obstacle(request) is None


def obstacle(request: Request) -> str | None:
    """Why a convolution or a fully connected layer multiplies floats; None if it need not."""
    attributes, src = request.node.attributes, request.input(0)
    stored = src.grid is not None and (not src.linear or reads_row_major(request.node, src))
    if request.is_constant(0) or not (stored or has_dynamic_rows(request)):
        return "the input is not stored as 8-bit integers"
    if request.is_computed(2):
        return "the bias is computed by the model"
    weights = whole_weights(request)
    if weights is None:
        return "the weights are not integers with a scale for each output channel"
    unit = _unit(request, weights)
    if unit is None:
        return "the unit does not multiply weights of 9 bits, or sums could exceed 32 bits"
    made = _divided(request, _as_packed(request, weights), unit)
    if made.workspace > local_vec4s(request.target):
        return "the device has less local memory than packed parts and their sums take"
    if not stored and not dynamic_pays(request, made.cycles(unit), made.column_tiles, unit.weight_bytes):
        return "to quantize the input at run time would hardly be faster"
    if not isinstance(attributes, Convolution) or attributes.groups == 1:
        return None
    columns = _columns(request, unit)[1]
    read = block_inputs(request.output.channels, attributes.groups, columns, src.geometry)
    depth = weights.integers.shape[3]
    if read.slices * LANES * columns * len(read.first) > unit.inputs * depth * request.output.channels:
        return "the groups have so few channels that most products would be by zero"
    return None


def _rows(request: Request) -> tuple[int, int]:
    """Images that have rows of their own, and how many rows."""
    g = request.output.geometry
    return (1, g.batch) if has_rows_of_images(request) else (g.batch, g.plane)


def _columns(request: Request, unit: IntegerUnit) -> tuple[tuple[int, int], int]:
    """Return the shape of a block of sums, in rows and registers, that takes the least time; and its columns."""
    attributes, out = request.node.attributes, request.output.geometry.channels
    rows, weights = _rows(request)[1], request.graph[request.node.inputs[1]]
    groups = attributes.groups if isinstance(attributes, Convolution) else 1

    def cycles(shape: tuple[int, int]) -> float:
        columns = shape[1] * unit.lanes
        quads = tile_count(prod(weights.shape[1:]), LANES)
        if groups > 1:
            read = block_inputs(out, groups, columns, request.input(0).geometry)
            quads = prod(weights.shape[1:3]) * read.slices
        return tile_count(out, columns) * _block_cycles(unit, shape, quads, rows)

    shape = min(unit.shapes, key=cycles)
    return shape, shape[1] * unit.lanes


@dataclass(frozen=True)
class _Division:
    """How a product is divided.

    shape: of a block of sums, in rows and registers. run: rows of a run, whole blocks, runs: of all images. part: quads
    of the depth that are packed together, of all ``steps``, and packed_bytes their size. column_blocks: of a tile, of
    all ``out_blocks``. offsets: of the quads of a part, in bytes. patch: of a run, if windows are packed so.
    dynamic: whether rows are quantized where they are packed.
    """

    shape: tuple[int, int]
    columns: int
    read: BlockInputs
    images: int
    run: int
    runs: int
    steps: int
    part: int
    packed_bytes: int
    column_blocks: int
    out_blocks: int
    offsets: Array
    patch: Patch | None
    dynamic: bool

    @property
    def column_tiles(self) -> int:
        """Tiles of the same rows."""
        return tile_count(self.out_blocks, self.column_blocks)

    @property
    def packed_vec4s(self) -> int:
        """Local memory for a part."""
        return tile_count(self.packed_bytes, VEC4_BYTES)

    @property
    def sums_vec4s(self) -> int:
        """Local memory for the sums of a block, or for all of a tile that wait for the next part."""
        waiting = self.column_blocks if self.part < self.steps else 1
        return waiting * self.run * self.columns * ITEM_BYTES["int"] // VEC4_BYTES

    @property
    def grids_vec4s(self) -> int:
        """Local memory for the grids of a run whose rows are quantized."""
        return tile_count(GRID_NUMBERS * self.run, LANES) if self.dynamic else 0

    @property
    def workspace(self) -> int:
        """All of it."""
        return self.packed_vec4s + self.sums_vec4s + self.grids_vec4s

    @property
    def products(self) -> int:
        """Products of a run and a block of columns."""
        return self.run * self.columns * LANES * self.steps

    def cycles(self, unit: IntegerUnit) -> float:
        """In which cores multiply all of it."""
        return self.runs * self.out_blocks * _block_cycles(unit, self.shape, self.steps, self.run)


def _block_cycles(unit: IntegerUnit, shape: tuple[int, int], steps: int, rows: int) -> float:
    """In which a core multiplies ``rows`` rows of a block of columns."""
    return tile_count(rows, shape[0]) * (steps * unit.step_cycles(*shape) + NUMBERS.block_cycles)


def _sees_patches(request: Request) -> bool:
    """Whether the windows of a convolution of an image in PHWC4 overlap, or have a stride."""
    attributes = request.node.attributes
    windows = isinstance(attributes, Convolution) and not attributes.window.is_pointwise
    return windows and not request.input(0).linear and not has_rows_of_images(request)


def _divided(request: Request, weights: WholeWeights, unit: IntegerUnit) -> _Division:
    """weights: as they are packed."""
    target, g, attributes = request.target, request.output.geometry, request.node.attributes
    groups = attributes.groups if isinstance(attributes, Convolution) else 1
    shape, columns = _columns(request, unit)
    images, all_rows = _rows(request)
    read = block_inputs(g.channels, groups, columns, Geometry((1, 1, 1, weights.integers.shape[3] * groups)))
    out_blocks, taps = len(read.first), prod(weights.integers.shape[1:3])
    steps, pixel_bytes = taps * read.slices, LANES * unit.element_bytes
    patch = None
    if _sees_patches(request):
        patch = best_patch(
            request.attributes(Convolution).window,
            g.height,
            g.width,
            read.slices,
            shape[0],
            out_blocks * _block_cycles(unit, shape, steps, shape[0]),
        )
        run = tile_count(patch.positions, shape[0]) * shape[0]
        runs = tile_count(g.height, patch.run_rows) * tile_count(g.width, patch.run_columns)
        slice_bytes = patch.slice_pixels * pixel_bytes
        slices = even_part(read.slices, NUMBERS.part_bytes // slice_bytes)
        part, offsets = slices * taps, patch.offsets(slices) * pixel_bytes
        packed_bytes = slices * slice_bytes + run * pixel_bytes  # the last rows of a run see what is after the patch
    else:
        row_blocks = tile_count(all_rows, shape[0])
        run = even_part(row_blocks, NUMBERS.run_rows // shape[0]) * shape[0]
        runs = tile_count(all_rows, run)
        part = even_part(steps, NUMBERS.part_bytes // (run * pixel_bytes))
        in_place = _reads_in_place(request, unit)
        packed = shape[0] if in_place else run
        offsets, packed_bytes = np.arange(part) * packed * pixel_bytes, part * packed * pixel_bytes
        if in_place:
            offsets = np.concatenate([np.arange(steps) * request.input(0).plane * pixel_bytes, offsets])
    waiting = max(1, NUMBERS.sums_bytes // (run * columns * ITEM_BYTES["int"])) if part < steps else out_blocks
    enough = max(1, NUMBERS.least_products // (run * columns * LANES * steps))
    per_core = NUMBERS.dynamic_tiles_per_core if request.input(0).grid is None else NUMBERS.tiles_per_core
    # Each tile packs the patches of its runs.
    packing = 0.0 if patch is None else patch.packing_cycles(read.slices) / _block_cycles(unit, shape, steps, run)
    seldom = min(ceil(packing / NUMBERS.most_packing), tile_count(runs * images * out_blocks, target.compute_units))
    wanted = max(tile_count(runs * images * out_blocks, target.compute_units * per_core), enough, seldom)
    column_blocks = min(waiting, out_blocks, max(1, wanted))
    if len(set(read.first)) > 1:  # what is packed for a tile are the channels of one group
        column_blocks = 1
    column_blocks = even_part(out_blocks, column_blocks)
    return _Division(
        shape,
        columns,
        read,
        images,
        run,
        runs * images,
        steps,
        part,
        packed_bytes,
        column_blocks,
        out_blocks,
        offsets.astype(np.int32),
        patch,
        request.input(0).grid is None,
    )


@INTEGERS.lowering("convolution", when=multiplies_integers, obstacle=obstacle)
@INTEGERS.lowering("fully_connected", when=multiplies_integers, obstacle=obstacle)
def integer_products(request: Request) -> Kernel:
    """Blocks of rows by output channels, whose operands are packed."""
    target, src, g = request.target, request.input(0), request.output.geometry
    weights, grid = whole_weights(request), src.grid
    assert weights is not None
    unit = _unit(request, weights)
    assert unit is not None
    weights = _as_packed(request, weights)
    made = _divided(request, weights, unit)
    cost = 2 * made.products * made.column_blocks
    per_tile = blocks_per_tile(made.runs, made.column_tiles, cost, target)
    # Layers of all numbers of rows read the same blocks of weights, so that signatures share them.
    parts = unit.packed_registers // made.shape[1] if has_rows_of_images(request) else 1
    blocks = parts * made.columns, tile_count(made.out_blocks, parts)
    arguments, adds_bias = _arguments(request, weights, unit, made.read, *blocks, by_slices=made.patch is not None)
    parameters: Callable[..., IntegerProductsParameters]
    if has_rows_of_images(request):
        parameters, macs = IntegerFullyConnectedParameters, g.batch * g.channels * made.steps * LANES
    else:
        loader: Callable[..., IntegerProductsParameters]
        loader = partial(IntegerConvolutionParameters, in_place=_reads_in_place(request, unit), slices=made.read.slices)
        if made.patch is not None:
            loader = partial(IntegerPatchesParameters, patch=made.patch)
        parameters = partial(
            loader,
            window=request.attributes(Convolution).window,
            first_slice=made.read.expression,
            zero=grid.zero - unit.offset if grid else 0,
            images=made.images,
        )
        macs = convolution_macs(request)
    return Kernel(
        parameters(
            function=unit.function,
            parts=parts,
            inputs=unit.inputs,
            rows=made.shape[0],
            registers=made.shape[1],
            columns=made.columns,
            run=made.run,
            runs=made.runs // made.images,
            column_blocks=made.column_blocks,
            out_blocks=made.out_blocks,
            steps=made.steps,
            part=made.part,
            blocks_per_tile=per_tile,
            element="short" if unit.widens else "uchar",
            packed_vec4s=made.packed_vec4s,
            sums_vec4s=made.sums_vec4s,
            dynamic=made.dynamic,
            offset=unit.offset,
            adds_bias=adds_bias,
            src=src,
        ),
        (request.activation("src", 0), Argument("offsets", "int", None, made.offsets), *arguments),
        tiles=made.column_tiles * tile_count(made.runs, per_tile),
        local_size=1,
        workspace=made.workspace,
        macs=macs,
    )


def _reads_in_place(request: Request, unit: IntegerUnit) -> bool:
    """Whether an image holds the quads of a pointwise convolution as they would be packed: pixels are neighbours."""
    attributes, src = request.node.attributes, request.input(0)
    packs = unit.widens or unit.offset or src.linear or src.grid is None or src.type != "uchar"
    return not packs and isinstance(attributes, Convolution) and attributes.window.is_pointwise


def _as_packed(request: Request, weights: WholeWeights) -> WholeWeights:
    """Return the weights; for an image in row-major order as if a window had one column of all the channels in its
    row."""
    if not request.input(0).linear or not isinstance(request.node.attributes, Convolution):
        return weights
    return replace(weights, integers=weights.integers.reshape(*weights.integers.shape[:2], 1, -1))


def _arguments(
    request: Request,
    weights: WholeWeights,
    unit: IntegerUnit,
    read: BlockInputs,
    columns: int,
    blocks: int,
    *,
    by_slices: bool,
) -> tuple[tuple[Argument, ...], bool]:
    """Packed weights, corrections, factors and bias, and whether there is such a bias.

    by_slices: whether the quads of all taps of a slice are neighbours, and not those of all slices of a tap.
    """
    grid, size = request.input(0).grid, blocks * columns
    integers, inputs = weights.integers, read.slices * LANES
    attributes = request.node.attributes
    if isinstance(attributes, Convolution) and attributes.groups > 1:
        integers = inputs_of_blocks(integers, attributes.groups, columns, read, inputs)
    out, kh, kw, depth = integers.shape
    padded = np.zeros((size, kh, kw, inputs), np.int16 if unit.weight_bytes == 2 else np.int8)
    padded[:out, ..., :depth] = integers
    split = padded.reshape(blocks, columns, kh * kw, inputs // LANES, LANES // unit.inputs, unit.inputs)
    packed = reordered(split.transpose(0, 3, 2, 4, 1, 5) if by_slices else split.transpose(0, 2, 3, 4, 1, 5))
    zero, scale = (grid.zero - unit.offset, grid.scale) if grid else (1, 1.0)
    corrections = -zero * integers.reshape(out, -1).sum(axis=1, dtype=np.int64)
    factors = scale * weights.scale
    bias = request.optional_constant(2)
    adds_bias = bias is not None
    if bias is not None and grid:
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
