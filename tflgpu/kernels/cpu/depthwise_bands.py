"""A depthwise convolution and the pointwise one after it as one kernel on CPUs, in bands that stay in a cache."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tflgpu.graph.layout import LANES, Geometry, Size, pack
from tflgpu.kernels.candidates import ranked
from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.cpu.band_kernels import Band, BandCandidate, BandParameters, bands, is_possible, pixels_by_vectors
from tflgpu.kernels.cpu.block_products import pixels_per_block
from tflgpu.kernels.cpu.costs import BandWork, depthwise_rate
from tflgpu.kernels.cpu.depthwise_kernels import wide_vec4s
from tflgpu.kernels.fused_convolutions import DepthwisePointwise
from tflgpu.kernels.fusing import inner_epilogue
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.packing import pack_dense, padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.window import POINTWISE, Window
from tflgpu.target import Target


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
