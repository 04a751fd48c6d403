"""Depthwise convolutions on tensor cores: products of pixels by diagonal matrices, whose diagonals are the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod

from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.convolutions import depthwise_arguments, has_unrolled_taps
from tflgpu.kernels.gpu.depthwise_kernels import input_rows
from tflgpu.kernels.gpu.excite_kernel import SummingParameters, with_hidden_sums, with_room_for_sums
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.costs import DiagonalWork
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.convolution import Depthwise
from tflgpu.ops.image.window import Window
from tflgpu.target import Target

PIXELS = (1, 2, 4)
WARP_SLICES = (1, 4)
COLUMNS = 2  # of a lane: the two rows of a product that it has


@dataclass(frozen=True)
class DiagonalTile(Tile):
    """Pixels that a lane computes one below the other, in each of its two columns, and slices of a warp."""

    pixels: int
    warp_slices: int


def diagonal_candidates(window: Window, dst: Storage, target: Target) -> list[Candidate[DiagonalTile, DiagonalWork]]:
    """Return the tiles of a depthwise convolution of halves that gives ``dst``, the fastest first."""
    tiles = (
        DiagonalTile(pixels, warp_slices) for pixels in PIXELS for warp_slices in WARP_SLICES if pixels <= dst.height
    )
    return ranked(tiles, lambda tile: _work(tile, window, dst, target), target)


def _work(tile: DiagonalTile, window: Window, dst: Storage, target: Target) -> DiagonalWork:
    items = dst.batch * tile_count(dst.height, tile.pixels) * tile_count(dst.width, COLUMNS)
    parts = tile_count(items * tile.warp_slices, UNIT.lanes)
    warp_tiles = parts * tile_count(dst.slices, tile.warp_slices)
    columns = {kx * window.dilation[1] + r * window.stride[1] for kx in range(window.kernel[1]) for r in range(COLUMNS)}
    return DiagonalWork(
        tiles=tile_count(warp_tiles, target.local_size // UNIT.lanes),
        parts=parts,
        has_whole_image=parts == 1,
        vec4s=len(columns) * len(input_rows(window, tile.pixels)) + COLUMNS * tile.pixels,
    )


def _has_halves(request: Request) -> bool:
    """Whether a depthwise convolution with a small window multiplies halves by halves."""
    return has_unrolled_taps(request) and {a.type for a in depthwise_arguments(request)[:2]} == {"half"}


@dataclass(frozen=True, kw_only=True)
class DiagonalDepthwiseParameters(SummingParameters, template="mma/diagonal_depthwise", stores_once=True):
    """Parameters of ``templates/mma/diagonal_depthwise.cl.j2``."""

    window: Window
    pixels: int
    warp_slices: int
    rows: Sequence[tuple[int, Sequence[tuple[int, int]]]]
    src: Storage


@MMA.lowering("depthwise", when=_has_halves)
def diagonal_depthwise(request: Request) -> Kernel:
    """Return a depthwise convolution as products by diagonal matrices."""
    window, g, target = request.attributes(Depthwise).window, request.output.geometry, request.target
    candidates = diagonal_candidates(window, request.output, target)
    chosen = request.choose_candidate(with_room_for_sums(request, candidates))
    kernel = Kernel(
        DiagonalDepthwiseParameters(
            window=window,
            **asdict(chosen.tile),
            rows=input_rows(window, chosen.tile.pixels),
            src=request.input(0),
        ),
        depthwise_arguments(request),
        tiles=chosen.work.tiles,
        local_size=target.local_size,
        macs=prod(window.kernel) * g.pixels * g.channels,
    )
    warp_slices, warps = chosen.tile.warp_slices, target.local_size // UNIT.lanes
    slices = tile_count(kernel.tiles * warps, chosen.work.parts) * warp_slices
    return with_hidden_sums(request, kernel, warps * warp_slices, UNIT.lanes // warp_slices, slices)
