"""A pointwise convolution and the mean over all pixels of its result as one kernel, the first on matrix units."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.ir import EpilogueOp
from tflgpu.graph.layout import LANES
from tflgpu.kernels.inner_epilogue import inner_epilogue
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.lowering import lowering
from tflgpu.kernels.nvidia.implicit_gemm import COLUMN_CYCLES, ROW_CYCLES, prefetch_depth
from tflgpu.kernels.packing import SIDE, pack_fragments, padded_bias
from tflgpu.kernels.request import Request, TileConfig
from tflgpu.kernels.tiling import tile_count
from tflgpu.kernels.work_group import BATCH_LATENCY, SPLIT_K, TILE_LATENCY, WARP, reduction_cycles, workspace
from tflgpu.target import Target


@dataclass(frozen=True)
class PointwiseMean:
    """A pointwise convolution with ``steps`` of its own, and the mean over all pixels of an image that alone reads it.

    Inputs: image NHWC, weights [out, 1, 1, in] and bias; all but the image are constants. Made by planning, too.

    steps: functions of their own earlier values.
    """

    epilogue: tuple[EpilogueOp, ...]


@dataclass(frozen=True)
class PointwiseMeanTile:
    """How many warps share the input channels of 16 pixels by 16 channels, and roughly how long the kernel takes."""

    split_k: int
    tiles: int
    cycles: float

    @property
    def config(self) -> TileConfig:
        return (self.split_k,)


def pointwise_mean_tiles(src: Storage, dst: Storage, target: Target) -> list[PointwiseMeanTile]:
    """The ways to share the work, the best first. A tile is 16 channels of an image."""
    warps, blocks = target.local_size // WARP, tile_count(src.plane, SIDE)
    input_blocks = tile_count(src.slices, SIDE // LANES)
    tiles = dst.geometry.batch * tile_count(dst.slices, SIDE // LANES)

    def tile(split_k: int) -> PointwiseMeanTile:
        rounds, k_steps = tile_count(blocks * split_k, warps), input_blocks // split_k
        waiting = tile_count(k_steps, prefetch_depth(k_steps, 1, 1)) * BATCH_LATENCY
        loading = k_steps * min(warps, blocks * split_k) * (ROW_CYCLES + COLUMN_CYCLES)
        sharing = reduction_cycles(target, split_k, 2) + reduction_cycles(target, warps, 1)
        waves = tile_count(tiles, target.compute_units)
        return PointwiseMeanTile(split_k, tiles, waves * (TILE_LATENCY + rounds * max(waiting, loading) + sharing))

    # Split sums are added up once.
    choices = (n for n in SPLIT_K if n == 1 or (input_blocks % n == 0 and blocks * n <= warps))
    return sorted(map(tile, choices), key=lambda p: p.cycles)


@lowering("pointwise_mean", "gpu")
def pointwise_mean(request: Request) -> Kernel:
    attributes, src, dst, target = request.node.attributes, request.input(0), request.output, request.target
    assert isinstance(attributes, PointwiseMean)
    tile = request.choose_candidate(pointwise_mean_tiles(src, dst, target))
    input_blocks = tile_count(src.slices, SIDE // LANES)
    packed = pack_fragments(request.constant(1), 1, input_blocks)
    return Kernel(
        "nvidia/pointwise_mean",
        {
            "pointwise_epilogue": inner_epilogue(attributes.epilogue),
            "split_k": tile.split_k,
            "prefetch_depth": prefetch_depth(input_blocks // tile.split_k, 1, 1),
            "input_blocks": input_blocks,
            "column_tiles": len(packed),
            "src": src,
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("bias", "float", None, padded_bias(request.constant(2), len(packed) * SIDE)),
        ),
        tiles=tile.tiles,
        local_size=target.local_size,
        workspace=max(workspace(target, tile.split_k, 2), target.local_size),
        macs=src.geometry.pixels * src.channels * dst.channels,
    )
