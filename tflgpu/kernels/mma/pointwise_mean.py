"""A pointwise convolution and the mean over all pixels of its result as one kernel, the first on matrix units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tflgpu.graph.ir import EpilogueOp
from tflgpu.kernels.candidates import Candidate, TileConfig, ranked
from tflgpu.kernels.fusing import inner_epilogue
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.mma import MMA
from tflgpu.kernels.mma.costs import PointwiseMeanWork, pointwise_mean_cycles
from tflgpu.kernels.mma.implicit_gemm import prefetch_depth
from tflgpu.kernels.mma.m16n8k16 import M16N8K16 as UNIT
from tflgpu.kernels.mma.operands import Operands, operands_of_image, type_of_constant
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import SPLIT_K, fits_local, split_workspace, tile_count
from tflgpu.target import Target


@dataclass(frozen=True)
class PointwiseMean:
    """A pointwise convolution with an ``epilogue`` of its own, and the mean of all pixels that alone reads it.

    Inputs: image NHWC, weights [out, 1, 1, in] and bias; all but the image are constants. Made by
    :mod:`tflgpu.kernels.mma.fuse_pairs`.

    epilogue: ops that read no inputs.
    """

    epilogue: tuple[EpilogueOp, ...]


@dataclass(frozen=True)
class PointwiseMeanTile:
    """How many warps share the input channels of 16 pixels by 16 channels; a work-group has 16 channels of an image."""

    split_k: int

    @property
    def config(self) -> TileConfig:
        return (self.split_k,)


def pointwise_mean_candidates(
    src: Storage, dst: Storage, target: Target
) -> list[Candidate[PointwiseMeanTile, PointwiseMeanWork]]:
    """The tiles of a pointwise convolution of ``src`` whose mean is ``dst``, the fastest first.

    Only those that local memory is large enough for.
    """
    return ranked(
        _tiles(src, target),
        lambda tile: _work(tile, operands_of_image(src, target.storage), src, dst, target),
        lambda work: pointwise_mean_cycles(work, target),
    )


def _tiles(src: Storage, target: Target) -> Iterator[PointwiseMeanTile]:
    warps, row_blocks = target.local_size // UNIT.lanes, tile_count(src.plane, UNIT.side)
    for split_k in SPLIT_K:
        # Partial sums are added up once, so the warps of all splits have to run at the same time.
        splits_evenly = UNIT.blocks(src.slices) % split_k == 0 and row_blocks * split_k <= warps
        if (split_k == 1 or splits_evenly) and fits_local(target, _workspace(split_k, target)):
            yield PointwiseMeanTile(split_k)


def _workspace(split_k: int, target: Target) -> int:
    """float4 elements of local memory, for partial sums of K and then of pixels."""
    return max(split_workspace(target, split_k, 2), target.local_size)


def _work(tile: PointwiseMeanTile, operands: Operands, src: Storage, dst: Storage, target: Target) -> PointwiseMeanWork:
    warps, warp_tiles = target.local_size // UNIT.lanes, tile_count(src.plane, UNIT.side) * tile.split_k
    k_steps = UNIT.blocks(src.slices) // tile.split_k
    return PointwiseMeanWork(
        operands=operands,
        tiles=dst.geometry.batch * UNIT.blocks(dst.slices),
        rounds=tile_count(warp_tiles, warps),
        batches=tile_count(k_steps, prefetch_depth(operands, k_steps, 1, 1)),
        blocks=k_steps * min(warps, warp_tiles),
        split_k=tile.split_k,
    )


@MMA.lowering("pointwise_mean")
def pointwise_mean(request: Request) -> Kernel:
    attributes, src, dst, target = request.node.attributes, request.input(0), request.output, request.target
    assert isinstance(attributes, PointwiseMean)
    chosen = request.choose_candidate(pointwise_mean_candidates(src, dst, target))
    split_k, input_blocks = chosen.tile.split_k, UNIT.blocks(src.slices)
    packed = UNIT.pack_right(request.constant(1), 1, input_blocks)
    operands = operands_of_image(src, type_of_constant(request, packed))
    return Kernel(
        "mma/pointwise_mean",
        {
            "operands": operands,
            "pointwise_epilogue": inner_epilogue(attributes.epilogue),
            "split_k": split_k,
            "prefetch_depth": prefetch_depth(operands, input_blocks // split_k, 1, 1),
            "input_blocks": input_blocks,
            "column_tiles": len(packed),
            "src": src,
        },
        (
            request.activation("src", 0),
            Argument("weights", operands.weights, None, packed),
            Argument("bias", "float", None, padded_bias(request.constant(2), len(packed) * UNIT.side)),
        ),
        tiles=chosen.work.tiles,
        local_size=target.local_size,
        workspace=_workspace(split_k, target),
        macs=src.geometry.pixels * src.channels * dst.channels,
    )
