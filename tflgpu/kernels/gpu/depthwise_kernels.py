"""Depthwise convolutions of small windows on GPUs: a work-item computes some pixels of a column, which share rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.convolutions import depthwise_arguments, has_unrolled_taps
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.portable.costs import KLoopWork
from tflgpu.kernels.portable.matmul_kernels import choose_with_group
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.convolution import Depthwise
from tflgpu.ops.image.window import Window
from tflgpu.target import ElementType, Target

PIXELS = (1, 2, 4)


@dataclass(frozen=True)
class DepthwiseTile(Tile):
    """Pixels of a work-item, one below the other."""

    pixels: int


def depthwise_candidates(window: Window, dst: Storage, target: Target) -> list[Candidate[DepthwiseTile, KLoopWork]]:
    """Return the tiles of a depthwise convolution that gives ``dst``, the fastest first."""
    tiles = (DepthwiseTile(pixels) for pixels in PIXELS if pixels <= dst.height)
    return ranked(tiles, lambda tile: _work(tile, window, dst, target), target)


def _work(tile: DepthwiseTile, window: Window, dst: Storage, target: Target) -> KLoopWork:
    """All taps are one k-step: their loads are under way at once."""
    taps = prod(window.kernel)
    items = dst.batch * dst.slices * tile_count(dst.height, tile.pixels) * dst.width
    return KLoopWork(
        tiles=tile_count(items, target.local_size),
        k_steps=1,
        loads=taps + window.kernel[1] * len(input_rows(window, tile.pixels)),
        products=taps * tile.pixels / LANES,
        accumulators=tile.pixels,
    )


def input_rows(window: Window, pixels: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """Return the input rows that ``pixels`` outputs of a column need, from the first tap of the first one on.

    Each comes with its uses: the output and the tap that it is for.
    """
    uses: dict[int, list[tuple[int, int]]] = {}
    for j, ky in product(range(pixels), range(window.kernel[0])):
        uses.setdefault(j * window.stride[0] + ky * window.dilation[0], []).append((j, ky))
    return sorted(uses.items())


@dataclass(frozen=True, kw_only=True)
class DepthwiseColumnsParameters(Parameters, template="gpu/depthwise_columns", stores_once=True):
    """Parameters of ``templates/gpu/depthwise_columns.cl.j2``."""

    window: Window
    pixels: int
    rows: Sequence[tuple[int, Sequence[tuple[int, int]]]]
    per_tile: Size
    src: Storage
    weights_type: ElementType
    factor_type: ElementType


@GPU.lowering("depthwise", when=has_unrolled_taps)
def depthwise_columns(request: Request) -> Kernel:
    """Return a depthwise convolution whose work-items compute some neighbouring pixels of a slice."""
    window, g = request.attributes(Depthwise).window, request.output.geometry
    chosen, target = choose_with_group(request, partial(depthwise_candidates, window, request.output))
    arguments = depthwise_arguments(request)
    return Kernel(
        DepthwiseColumnsParameters(
            window=window,
            pixels=chosen.tile.pixels,
            rows=input_rows(window, chosen.tile.pixels),
            per_tile=target.local_size,
            src=request.input(0),
            weights_type=arguments[1].type,
            factor_type=request.factor_type(arguments[0].type, arguments[1].type),
        ),
        arguments,
        tiles=chosen.work.tiles,
        local_size=target.local_size,
        macs=prod(window.kernel) * g.pixels * g.channels,
    )
