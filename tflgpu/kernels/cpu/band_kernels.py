"""Two convolutions in a row, one of them depthwise, as one kernel on CPUs, in bands of rows that stay in a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tflgpu.graph.ir import Array, EpilogueOp
from tflgpu.graph.layout import LANES, Geometry, Size, pack
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.cpu.block_products import pixels_per_block
from tflgpu.kernels.cpu.convolution_kernels import CONVOLUTION, PixelRows, lines_ahead
from tflgpu.kernels.cpu.costs import BandWork, counted_bytes, depthwise_rate, product_rates
from tflgpu.kernels.cpu.row_kernels import wide_vec4s
from tflgpu.kernels.fusing import DepthwisePointwise, inner_epilogue
from tflgpu.kernels.kernel import Argument, Kernel, Parameters, Storage
from tflgpu.kernels.packing import pack_dense, padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import local_vec4s, tile_count
from tflgpu.ops.image.window import POINTWISE, Window, span
from tflgpu.target import ElementType, Target
from tflgpu.target.kernel_numbers import kernel_numbers

# Vectors of a block of channels, and the pixels of a block of the convolution by them. All sums are in registers, of
# which narrow ones, of 4 or 8 floats, hold few vectors of 16. So are the pixels themselves where they are halves.
PIXELS: Mapping[int, int] = {2: 11, 1: 14}
PIXELS_OF_HALVES: Mapping[int, int] = {2: 8, 1: 12}
NARROW_PIXELS: Mapping[int, int] = {2: 3, 1: 6}


@dataclass(frozen=True, kw_only=True)
class BandNumbers:
    """Numbers of pairs of convolutions in bands.

    Attributes:
        columns: Pixels of the depthwise result that are computed together, about or less.
        wide_vec4s: Vec4s of rows of an image that become floats before a window sees them: they stay in a near cache.
        pixels_of_far_weights: Pixels of two vectors where weights are far: the more share them the better, if they
            divide a row.
    """

    columns: int
    wide_vec4s: int
    pixels_of_far_weights: int


NUMBERS = kernel_numbers("cpu/bands", BandNumbers)


@dataclass(frozen=True)
class ConvolutionDepthwise:
    """A convolution with an ``epilogue`` of its own, and the depthwise one that alone reads it.

    Inputs: image NHWC, weights [channels, kh, kw, in] and bias of the convolution, weights [1, kh, kw, channels] and
    bias of the depthwise one; all but the image are constants. Made by :mod:`tflgpu.kernels.cpu.rewrites`.

    convolution, depthwise: their windows. epilogue: ops that read no inputs.
    """

    convolution: Window
    depthwise: Window
    epilogue: tuple[EpilogueOp, ...]


@dataclass(frozen=True)
class Band(Tile):
    """Result of a tile: ``rows`` rows in ``vectors`` * 16 channels.

    whole: number of blocks of channels that are not divided into bands; a tile computes all rows of one.
    """

    vectors: int
    rows: int
    whole: int = 0


BandCandidate = Candidate[Band, BandWork]


def band_candidates(
    attributes: ConvolutionDepthwise, src: Storage, dst: Geometry, target: Target
) -> list[BandCandidate]:
    """Return the bands that the device has room and time for, the fastest first; none if it has neither for any.

    dst: the result of both.
    """
    found = ranked(
        (shared for band in bands(dst, target) for shared in shared_out(band, dst, target)),
        lambda band: band_work(band, attributes, src, dst, target),
        target,
    )
    return [candidate for candidate in found if is_possible(candidate.work, target)]


def bands(dst: Geometry, target: Target) -> Iterator[Band]:
    """Yield the bands that divide the rows of ``dst`` among 1, 2, 4 and so on."""
    halvings = range(dst.height.bit_length())
    for vectors in pixels_by_vectors(target):
        for rows in dict.fromkeys(tile_count(dst.height, 1 << n) for n in halvings):
            yield Band(vectors, rows)


def shared_out(band: Band, dst: Geometry, target: Target) -> Iterator[Band]:
    """Yield the band; where every core has as many whole blocks, also bands for the blocks that are left over."""
    yield band
    cores, blocks = target.compute_units, tile_count(dst.channels, band.vectors * VECTOR)
    left = blocks % cores
    if blocks > left > 0 and left * tile_count(dst.height, band.rows) % cores == 0:
        yield replace(band, whole=blocks - left)


def pixels_by_vectors(target: Target, halves: bool = False) -> Mapping[int, int]:
    """How many pixels of how many vectors of 16 channels the registers hold the sums of. halves: what pixels are."""
    if target.limits.vector_width < VECTOR:
        return NARROW_PIXELS
    return PIXELS_OF_HALVES if halves else PIXELS


def wide_rows(band: Band, attributes: ConvolutionDepthwise, src: Storage) -> Storage | None:
    """Return what a convolution reads for a row, as floats, if its image is to become floats row by row; else None.

    Products with several vectors share what it takes to make a float of a half. To make one of an integer on a grid
    takes longer.
    """
    window = attributes.convolution
    if src.type == "float" or src.linear or src.width < LANES:
        return None
    rows = Storage(Geometry((1, window.kernel[0], src.width, src.channels)), "float")
    if src.grid is not None:
        return rows if rows.vec4s <= NUMBERS.wide_vec4s else None
    return rows if window.is_pointwise and band.vectors == 1 else None


def band_work(band: Band, attributes: ConvolutionDepthwise, src: Storage, dst: Geometry, target: Target) -> BandWork:
    """Return what the tiles have to do if each computes ``band``. dst: the result of both."""
    window = attributes.depthwise
    height, width = image_size(attributes, src)
    kept = kept_rows(window)
    computed = min(height, (band.rows - 1) * window.stride[0] + kept)
    depth = prod(attributes.convolution.kernel) * (src.channels if src.linear else src.slices * LANES)
    row = max(
        window.padding.left + width, (dst.width - 1) * window.stride[1] + span(window.kernel[1], window.dilation[1])
    )
    wide = wide_rows(band, attributes, src)
    before = None
    if band.whole:
        whole = band_work(Band(band.vectors, dst.height), attributes, src, dst, target)
        before = replace(whole, tiles=band.whole * dst.batch)
    left = tile_count(dst.channels, band.vectors * VECTOR) - band.whole
    return BandWork(
        tiles=left * tile_count(dst.height, band.rows) * dst.batch,
        vectors=band.vectors,
        convolution_products=computed * width * depth * band.vectors,
        depthwise_products=band.rows * dst.width * prod(window.kernel) * band.vectors,
        depthwise_rate=product_rates(target).row,
        workspace=kept * row * band.vectors * VECTOR // LANES + (wide.vec4s if wide else 0),
        image=counted_bytes(src) if band.rows == dst.height else 0,
        before=before,
    )


def is_possible(work: BandWork, target: Target) -> bool:
    """Whether the device has room and time for the tiles."""
    if work.before and not is_possible(work.before, target):
        return False
    turns = (work.convolution_products + work.depthwise_products) * VECTOR // LANES  # at most one for each vec4
    return work.workspace <= local_vec4s(target) and turns <= target.limits.loop_turns


def image_size(attributes: ConvolutionDepthwise, src: Storage) -> tuple[int, int]:
    """Height and width of the convolution's result."""
    return attributes.convolution.output(src.height, src.width)


def kept_rows(window: Window) -> int:
    """Rows of the image that a window sees, the first to the last."""
    return span(window.kernel[0], window.dilation[0])


@dataclass(frozen=True, kw_only=True)
class BandParameters(Parameters):
    """Parameters of templates of both kinds of bands: the first convolution's window, and those of cpu/windows.cl.j2.

    That knows groups and phases, which no convolution in a band has.
    """

    window: Window
    inner_epilogue: Sequence[Mapping[str, object]]
    slices_out: int
    pixels: int
    rows_per_band: Size
    out_blocks: Size
    slices: Size
    src: Storage
    turns: Size
    lines_ahead: int = 0
    groups: None = None
    phases: None = None
    weights_type: ElementType = "float"
    factor_type: ElementType = "float"


@dataclass(frozen=True)
class CoreShare:
    """How many blocks of whole images, and how many bands, a core computes one after the other."""

    whole: Size
    bands: Size


@dataclass(frozen=True, kw_only=True)
class BandConvolutionDepthwiseParameters(BandParameters, template="cpu/band_convolution_depthwise", stores_once=True):
    """Parameters of ``templates/cpu/band_convolution_depthwise.cl.j2``."""

    depthwise: Window
    depthwise_taps: tuple[Size, Size]
    image: PixelRows
    wide: Storage | None
    columns: int
    kept_rows: Size
    whole_blocks: Size
    shares: CoreShare


@CPU.lowering("convolution_depthwise")
def convolution_depthwise(request: Request) -> Kernel:
    """Return a convolution and the depthwise one that reads it, in bands of rows."""
    attributes, src, dst = request.attributes(ConvolutionDepthwise), request.input(0), request.output.geometry
    best = request.choose_candidate(band_candidates(attributes, src, dst, request.target))
    band, window = best.tile, attributes.depthwise
    wide = wide_rows(band, attributes, src)
    pixels = pixels_by_vectors(request.target, src.type != "float" and not wide)[band.vectors]
    height, width = image_size(attributes, src)
    depth = request.constant(1)[0].size
    block = band.vectors * VECTOR
    blocks = tile_count(dst.channels, block)
    bands_of_image = (blocks - band.whole) * tile_count(dst.height, band.rows)
    cores = request.target.compute_units if band.whole else 1
    block_pixels = _convolution_pixels(width, band.vectors, depth, pixels)
    blocks_of_band = band.rows * window.stride[0] * tile_count(width, block_pixels)
    weights = pack_dense(request.constant(1), block, src.channels if src.linear else src.slices * LANES)
    return Kernel(
        BandConvolutionDepthwiseParameters(
            window=attributes.convolution,
            depthwise=window,
            depthwise_taps=window.kernel,
            inner_epilogue=inner_epilogue(attributes.epilogue),
            image=PixelRows(height, width),
            wide=wide,
            slices_out=block // LANES,
            pixels=block_pixels,
            columns=pixels_per_block(dst.width, min(pixels * band.vectors, NUMBERS.columns)),
            rows_per_band=band.rows,
            kept_rows=kept_rows(window),
            whole_blocks=band.whole,
            out_blocks=blocks,
            shares=CoreShare(band.whole // cores, bands_of_image // cores),
            slices=src.slices,
            src=src,
            lines_ahead=lines_ahead(attributes.convolution, src, band.vectors, blocks_of_band, blocks),
            turns=request.target.unrolled,
        ),
        (
            request.activation("src", 0),
            Argument("weights", "float", None, weights),
            Argument("bias", "float", None, padded_bias(request.constant(2), blocks * block)),
            Argument("depthwise_weights", "float", None, _taps(request.constant(3), blocks * band.vectors)),
            Argument("depthwise_bias", "float", None, padded_bias(request.constant(4), blocks * block)),
        ),
        tiles=(band.whole + bands_of_image) * dst.batch,
        local_size=1,
        workspace=best.work.workspace,
        macs=src.batch * height * width * request.constant(1).size + dst.pixels * request.constant(3).size,
    )


def _convolution_pixels(width: int, vectors: int, depth: int, most: int) -> int:
    """How many pixels of a row of ``width`` are a block of the convolution. depth: products of each.

    Of several vectors and few products, 8 are as fast as more. They divide many widths, and layers whose blocks are
    alike are compiled once (:mod:`tflgpu.codegen.functions`).
    """
    if vectors > 1 and most > NUMBERS.columns:
        if depth >= CONVOLUTION.far_weights and width % NUMBERS.pixels_of_far_weights == 0:
            return NUMBERS.pixels_of_far_weights
        if width % NUMBERS.columns == 0:
            return NUMBERS.columns
    return pixels_per_block(width, most, part=0)


def _taps(weights: Array, vectors: int) -> Array:
    """[1, kh, kw, channels] -> [vector of 16 channels][kh][kw][16], zero past the last channel."""
    _, kh, kw, channels = weights.shape
    padded = np.zeros((kh * kw, vectors * VECTOR), np.float32)
    padded[:, :channels] = weights.reshape(kh * kw, channels)
    return np.ascontiguousarray(padded.reshape(kh * kw, vectors, VECTOR).transpose(1, 0, 2))


def depthwise_pointwise_bands(window: Window, src: Storage, dst: Geometry, target: Target) -> list[BandCandidate]:
    """Return the bands that the device has room and time for, the fastest first; none if it has neither for any.

    window: of the depthwise convolution. dst: the result of both.
    """
    found = ranked(bands(dst, target), lambda band: depthwise_pointwise_work(band, window, src, dst, target), target)
    return [candidate for candidate in found if is_possible(candidate.work, target)]


def depthwise_pointwise_work(band: Band, window: Window, src: Storage, dst: Geometry, target: Target) -> BandWork:
    """Return what the tiles have to do if each computes ``band``. dst: the result of both."""
    pixels = band.rows * dst.width
    blocks = tile_count(dst.channels, band.vectors * VECTOR)
    return BandWork(
        tiles=tile_count(dst.height, band.rows) * dst.batch,
        vectors=band.vectors,
        convolution_products=pixels * src.slices * LANES * blocks * band.vectors,
        depthwise_products=tile_count(pixels * src.slices * prod(window.kernel), VECTOR // LANES),
        depthwise_rate=depthwise_rate(window, target),
        workspace=pixels * src.slices + wide_vec4s(window, src),
    )


@dataclass(frozen=True, kw_only=True)
class BandDepthwisePointwiseParameters(BandParameters, template="cpu/band_depthwise_pointwise", stores_once=True):
    """Parameters of ``templates/cpu/band_depthwise_pointwise.cl.j2``."""

    widens: bool
    unrolled: bool
    upright: bool
    bands: Size
    kept: Storage
    pointwise: Window


@CPU.lowering("depthwise_pointwise")
def depthwise_pointwise(request: Request) -> Kernel:
    """Return a depthwise convolution and the pointwise one that reads it, in bands of rows."""
    attributes, src, dst = request.attributes(DepthwisePointwise), request.input(0), request.output.geometry
    best = request.choose_candidate(depthwise_pointwise_bands(attributes.window, src, dst, request.target))
    band = best.tile
    block = band.vectors * VECTOR
    blocks = tile_count(dst.channels, block)
    kept = Storage(Geometry((src.batch, 1, band.rows * dst.width, src.channels)), "float")
    weights = pack_dense(request.constant(3), block, src.slices * LANES)
    return Kernel(
        BandDepthwisePointwiseParameters(
            window=attributes.window,
            widens=wide_vec4s(attributes.window, src) > 0,
            unrolled=True,
            upright=False,
            inner_epilogue=inner_epilogue(attributes.epilogue),
            slices_out=block // LANES,
            pixels=pixels_per_block(kept.width, pixels_by_vectors(request.target)[band.vectors]),
            out_blocks=blocks,
            rows_per_band=band.rows,
            bands=tile_count(dst.height, band.rows),
            kept=kept,
            pointwise=POINTWISE,
            slices=src.slices,
            src=src,
            turns=request.target.unrolled,
        ),
        (
            request.activation("src", 0),
            Argument("depthwise_weights", "float", None, pack(request.constant(1))),
            Argument("depthwise_bias", "float", None, padded_bias(request.constant(2), src.slices * LANES)),
            Argument("weights", "float", None, weights),
            Argument("bias", "float", None, padded_bias(request.constant(4), blocks * block)),
        ),
        tiles=best.work.tiles,
        local_size=1,
        workspace=best.work.workspace,
        macs=dst.pixels * (request.constant(1).size + request.constant(3).size),
    )
