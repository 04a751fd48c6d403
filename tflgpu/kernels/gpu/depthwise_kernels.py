"""Depthwise convolutions on GPUs: of small windows by columns that share rows, and of any window.

With stride s and dilation d, outputs that are q = U / s places apart read the image U pixels apart, and so do taps that
are g = U / d apart. Of such outputs 0, 1 ... and such taps 0, 1 ..., output j with tap m reads what output j + 1 does
with tap m - 1. So a work-item takes outputs of one residue modulo q, and one residue modulo g of taps after the other.
A large U lets neighbouring work-items read neighbouring vec4s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from math import lcm, prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.candidates import Candidate, Tile, TileConfig, ranked
from tflgpu.kernels.convolutions import depthwise_arguments, has_unrolled_taps
from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.portable.costs import KLoopWork
from tflgpu.kernels.portable.matmul_kernels import choose_with_group
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import SPLIT_K, can_split, operand_vec4s, split_workspace, tile_count
from tflgpu.ops.image.convolution import Depthwise
from tflgpu.ops.image.window import Window
from tflgpu.target import ElementType, Target
from tflgpu.target.kernel_numbers import kernel_numbers

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


OUTPUTS = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class WindowNumbers:
    """Numbers of depthwise convolutions of large windows.

    Attributes:
        taps_at_once: Taps of a step, at most: each is a vec4 of weights and one of the image.
        looked_up: Loads of input channels for a vec4 of the output, with a multiplier above 2.
        in_a_row: Vec4s that neighbouring work-items read: some 64 or 128 bytes.
    """

    taps_at_once: int
    looked_up: int
    in_a_row: int


WINDOW_NUMBERS = kernel_numbers("gpu/depthwise_windows", WindowNumbers)


@dataclass(frozen=True)
class WindowTile(Tile):
    """``outputs`` of a work-item along ``axis``, ``distance`` pixels of the image apart; ``split_k`` share the taps."""

    outputs: int
    axis: int
    distance: int
    split_k: int

    @property
    def config(self) -> TileConfig:
        """The parameters by which a tuner names the tile."""
        return self.outputs, self.axis, self.split_k


@dataclass(frozen=True)
class TapSteps:
    """How a work-item goes through the taps of a window: step by step, ``at_once`` of them in each.

    apart: how many places of the window lie between these. blocks: steps of one residue of places. steps: in all.
    """

    apart: int
    at_once: int
    blocks: int
    steps: int


def tap_steps(window: Window, tile: WindowTile, target: Target) -> TapSteps:
    """Return the steps of a work-item. The taps of a step fit into registers, together with the image and the sums."""
    most = min(WINDOW_NUMBERS.taps_at_once, max(1, (operand_vec4s(target) + 1) // 2 - tile.outputs))
    along, across = window.kernel[tile.axis], window.kernel[1 - tile.axis]
    apart = min(tile.distance // window.dilation[tile.axis], along)
    taps = tile_count(along, apart)
    blocks = tile_count(taps, most)
    return TapSteps(apart, tile_count(taps, blocks), blocks, across * apart * blocks)


def _tiles(request: Request, window: Window) -> Iterator[WindowTile]:
    """Along each axis at the least distance at which neighbours read enough in a row."""
    target, g = request.target, request.output.geometry
    for axis, outputs, split_k in product((0, 1), OUTPUTS, SPLIT_K):
        unit, beside = lcm(window.stride[axis], window.dilation[axis]), g.width if axis == 0 else 1
        distance = next(
            unit * 2**n for n in count() if unit * 2**n // window.stride[axis] * beside >= WINDOW_NUMBERS.in_a_row
        )
        tile = WindowTile(outputs, axis, distance if outputs > 1 else window.dilation[axis], split_k)
        shares_image = outputs == 1 or tap_steps(window, tile, target).at_once > 1
        if shares_image and can_split(target, split_k, outputs):
            yield tile


def _candidates(request: Request) -> list[Candidate[WindowTile, KLoopWork]]:
    """Return the tiles of a convolution of any window, the fastest first."""
    attributes, target = request.attributes(Depthwise), request.target
    window = attributes.window

    def work(tile: WindowTile) -> KLoopWork:
        taps = tap_steps(window, tile, target)
        image = (tile.outputs + taps.at_once - 1) * (1 if attributes.multiplier <= 2 else WINDOW_NUMBERS.looked_up)
        return _WindowWork(
            tiles=request.shares * tile_count(_items(request, tile) * tile.split_k, target.local_size),
            k_steps=tile_count(taps.steps, request.shares),
            loads=image + taps.at_once,
            products=taps.at_once * tile.outputs / LANES,
            accumulators=tile.outputs,
            split_k=tile.split_k,
        )

    return ranked(_tiles(request, window), work, target)


class _WindowWork(KLoopWork):
    def demand(self, target: Target) -> Demand:
        """Return the demand. A kernel takes as long as one tile alone at least: nothing hides the latency of loads."""
        model = target.cost_model
        step = model.batch_latency + model.working(target.local_size, self.loads, self.products, self.tile)
        alone = Demand(1, (Phase(tile_count(self.k_steps, self.split_k), (step,)),), model.tile_latency)
        return replace(super().demand(target), least=alone.cycles(target))


def _items(request: Request, tile: WindowTile) -> int:
    g = request.output.geometry
    return g.batch * request.output.slices * _places(request, tile) * (g.height, g.width)[1 - tile.axis]


def _places(request: Request, tile: WindowTile) -> int:
    """How many work-items the outputs along the tile's axis take."""
    apart = _outputs_apart(request, tile)
    extent = (request.output.height, request.output.width)[tile.axis]
    return tile_count(extent, apart * tile.outputs) * apart


def _outputs_apart(request: Request, tile: WindowTile) -> int:
    return tile.distance // request.attributes(Depthwise).window.stride[tile.axis] if tile.outputs > 1 else 1


@dataclass(frozen=True, kw_only=True)
class DepthwiseWindowParameters(Parameters, template="gpu/depthwise_window", stores_once=True):
    """Parameters of ``templates/gpu/depthwise_window.cl.j2``."""

    window: Window
    multiplier: int
    outputs: int
    axis: int
    outputs_apart: int
    places: Size
    taps: TapSteps
    split_k: int
    shares: int
    per_split: Size
    per_tile: Size
    src: Storage
    weights_type: ElementType
    factor_type: ElementType


@GPU.lowering("depthwise", best=lambda request: _candidates(request)[0])
def depthwise_window(request: Request) -> Kernel:
    """For every window and channel multiplier."""
    attributes, g, target = request.attributes(Depthwise), request.output.geometry, request.target
    chosen = request.choose_candidate(_candidates(request))
    tile, taps = chosen.tile, tap_steps(attributes.window, chosen.tile, target)
    per_tile = target.local_size // tile.split_k
    arguments = depthwise_arguments(request)
    return Kernel(
        DepthwiseWindowParameters(
            window=attributes.window,
            multiplier=attributes.multiplier,
            outputs=tile.outputs,
            axis=tile.axis,
            outputs_apart=_outputs_apart(request, tile),
            places=_places(request, tile),
            taps=taps,
            split_k=tile.split_k,
            shares=request.shares,
            per_split=tile_count(taps.steps, request.shares * tile.split_k),
            per_tile=per_tile,
            src=request.input(0),
            weights_type=arguments[1].type,
            factor_type=request.factor_type(arguments[0].type, arguments[1].type),
        ),
        arguments,
        tiles=tile_count(_items(request, tile), per_tile),
        local_size=target.local_size,
        workspace=split_workspace(target, tile.split_k, tile.outputs),
        macs=prod(attributes.window.kernel) * g.pixels * g.channels,
    )
