"""A pointwise convolution and the depthwise one after it as one kernel, the first on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from math import prod

from tflgpu.graph.ir import EpilogueOp
from tflgpu.graph.layout import LANES, Size, pack
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.fusing import inner_epilogue
from tflgpu.kernels.gpu.excite_kernel import SummingParameters, hidden_sums_beside, with_hidden_sums, with_room_for_sums
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.costs import PointwiseDepthwiseWork
from tflgpu.kernels.mma.gemm.packed_weights import prefetch_depth
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.m16n8k16 import Operands, operands_of_image, type_of_constant
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import SPLIT_K, fits_local, power_of_two, split_workspace, tile_count
from tflgpu.ops.image.window import Window, span
from tflgpu.target import Target

COLUMN_BLOCKS = (1, 2, 3, 4)
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)


@dataclass(frozen=True)
class PointwiseDepthwise:
    """A pointwise convolution with an ``epilogue`` of its own, and the depthwise one that alone reads it.

    Inputs: image NHWC, weights [channels, 1, 1, in] and bias of the pointwise convolution, weights
    [1, kh, kw, channels] and bias of the depthwise one; all but the image are constants. Made by
    :mod:`tflgpu.kernels.mma.rewrites`.

    window: of the depthwise convolution. epilogue: ops that read no inputs.
    """

    window: Window
    epilogue: tuple[EpilogueOp, ...]


@dataclass(frozen=True)
class PointwiseDepthwiseTile(Tile):
    """Tile of a work-group: rows of the result, blocks of 16 channels; ``split_k`` warps share input channels."""

    rows: int
    column_blocks: int
    split_k: int


PointwiseDepthwiseCandidate = Candidate[PointwiseDepthwiseTile, PointwiseDepthwiseWork]


def pointwise_depthwise_candidates(
    window: Window, src: Storage, dst: Storage, target: Target
) -> list[PointwiseDepthwiseCandidate]:
    """Return the tiles that local memory is large enough for, the fastest first.

    window: of the depthwise convolution, over the pixels of ``src``. dst: the result of both.
    """
    operands = operands_of_image(src, target.storage)
    found = ranked(
        _tiles(window, src, dst, target), lambda tile: _work(tile, operands, window, src, dst, target), target
    )
    return [candidate for candidate in found if fits_local(target, candidate.work.workspace)]


def _tiles(window: Window, src: Storage, dst: Storage, target: Target) -> Iterator[PointwiseDepthwiseTile]:
    warps, input_blocks = target.local_size // UNIT.lanes, UNIT.blocks(src.slices)
    fewest_rows = {tile_count(dst.height, rows): rows for rows in reversed(ROWS)}  # by how many tiles divide a column
    # Among configurations of equal cost the first is taken: that whose warps finish the fewest vec4s of the pointwise
    # result each, then the one with the fewest tiles.
    for column_blocks, rows, split_k in product(COLUMN_BLOCKS, fewest_rows.values(), SPLIT_K):
        row_blocks = tile_count(_pixels(rows, window, src), UNIT.side)
        # Partial sums are added up once, so the warps of all splits have to run at the same time.
        if input_blocks % split_k == 0 and (split_k == 1 or row_blocks * split_k <= warps):
            yield PointwiseDepthwiseTile(rows, column_blocks, split_k)


def _pixels(rows: int, window: Window, src: Storage) -> int:
    """Pixels of the pointwise result that ``rows`` rows of the depthwise one need."""
    return ((rows - 1) * window.stride[0] + span(window.kernel[0], window.dilation[0])) * src.width


def _slices(tile: PointwiseDepthwiseTile) -> int:
    return UNIT.side // LANES * tile.column_blocks


def _work(
    tile: PointwiseDepthwiseTile, operands: Operands, window: Window, src: Storage, dst: Storage, target: Target
) -> PointwiseDepthwiseWork:
    warps, columns = target.local_size // UNIT.lanes, UNIT.blocks(dst.slices)
    pixels = _pixels(tile.rows, window, src)
    warp_tiles = tile_count(pixels, UNIT.side) * tile.split_k
    sum_vec4s = split_workspace(target, tile.split_k, 2 * tile.column_blocks)
    between = operands.float4s(pixels * _slices(tile))
    summing_warps = max(1, power_of_two(target.local_size // _slices(tile)) // UNIT.lanes)
    margin = operands.float4s((window.kernel[1] - 1) * window.dilation[1])  # of columns beside an image
    return PointwiseDepthwiseWork(
        operands=operands,
        tiles=dst.batch * tile_count(dst.height, tile.rows) * tile_count(columns, tile.column_blocks),
        parts=tile_count(dst.height, tile.rows) * summing_warps,
        has_whole_image=tile.rows >= dst.height,
        k_steps=tile_count(warp_tiles, warps) * UNIT.blocks(src.slices) // tile.split_k,
        active_warps=min(warps, warp_tiles),
        column_blocks=tile.column_blocks,
        split_k=tile.split_k,
        depthwise_vec4s=tile_count(tile.rows * dst.width, target.local_size // _slices(tile)),
        result_at=sum_vec4s + margin,
        workspace=sum_vec4s + margin + between + margin,
    )


@dataclass(frozen=True, kw_only=True)
class PointwiseDepthwiseParameters(SummingParameters, template="mma/pointwise_depthwise", stores_once=True):
    """Parameters of ``templates/mma/pointwise_depthwise.cl.j2``."""

    operands: Operands
    window: Window
    pointwise_epilogue: Sequence[Mapping[str, object]]
    rows: int
    column_blocks: int
    split_k: int
    result_at: int
    prefetch_depth: int
    input_blocks: Size
    column_tiles: Size
    sharers: int
    src: Storage


@MMA.lowering("pointwise_depthwise")
def pointwise_depthwise(request: Request) -> Kernel:
    """Return a pointwise convolution into local memory, and the depthwise one that reads it there."""
    attributes, target = request.attributes(PointwiseDepthwise), request.target
    src, dst = request.input(0), request.output
    window = attributes.window
    # The fusion makes this node only where there is a candidate.
    candidates = pointwise_depthwise_candidates(window, src, dst, target)
    chosen = request.choose_candidate(with_room_for_sums(request, candidates))
    tile, work, input_blocks = chosen.tile, chosen.work, UNIT.blocks(src.slices)
    sharers = target.local_size // _slices(tile)
    if hidden_sums_beside(request) is not None:
        sharers = power_of_two(sharers)
    packed, taps = UNIT.pack_right(request.constant(1), tile.column_blocks, input_blocks), pack(request.constant(3))
    operands = operands_of_image(src, type_of_constant(request, packed))
    kernel = Kernel(
        PointwiseDepthwiseParameters(
            operands=operands,
            window=window,
            pointwise_epilogue=inner_epilogue(attributes.epilogue),
            **asdict(tile),
            result_at=work.result_at,
            prefetch_depth=prefetch_depth(operands, input_blocks // tile.split_k, 1, tile.column_blocks),
            input_blocks=input_blocks,
            column_tiles=tile_count(UNIT.blocks(dst.slices), tile.column_blocks),
            sharers=sharers,
            src=src,
        ),
        (
            request.activation("src", 0),
            Argument("weights", operands.weights, None, packed),
            Argument("pointwise_bias", "float", None, padded_bias(request.constant(2), len(packed) * UNIT.side)),
            Argument("depthwise_weights", "float", None, taps),
            Argument("bias", "float", None, padded_bias(request.constant(4), dst.slices * LANES)),
        ),
        tiles=work.tiles,
        local_size=target.local_size,
        workspace=work.workspace,
        macs=dst.channels * (src.geometry.pixels * src.channels + dst.geometry.pixels * prod(window.kernel)),
    )
    slices = tile_count(UNIT.blocks(dst.slices), tile.column_blocks) * _slices(tile)
    return with_hidden_sums(request, kernel, _slices(tile), min(sharers, UNIT.lanes), slices)
