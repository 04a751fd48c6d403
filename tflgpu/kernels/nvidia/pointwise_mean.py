"""A pointwise convolution and the mean over all pixels of its result as one kernel, the first on matrix units."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.ir import Step
from tflgpu.graph.layout import LANES
from tflgpu.kernels.inner_epilogue import inner_epilogue
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.lowering import variant
from tflgpu.kernels.nvidia.implicit_gemm import COLUMN_CYCLES, ROW_CYCLES, step_depth
from tflgpu.kernels.packing import SIDE, pack_fragments, padded_bias
from tflgpu.kernels.request import Choice, Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.kernels.work_group import BATCH_LATENCY, SPLITS, TILE_LATENCY, WARP, reduction_cycles, scratch
from tflgpu.target import Target


@dataclass(frozen=True)
class PointwiseMean:
    """A pointwise convolution with ``steps`` of its own, and the mean over all pixels of an image that alone reads it.

    Inputs: image NHWC, weights [out, 1, 1, in] and bias; all but the image are constants. Made by planning, too.

    steps: functions of their own earlier values.
    """

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class MeanPart:
    """How many warps share the input channels of 16 pixels by 16 channels, and roughly how long the kernel takes."""

    splits: int
    tiles: int
    cycles: float

    @property
    def choice(self) -> Choice:
        return (self.splits,)


def mean_parts(src: Storage, dst: Storage, target: Target) -> list[MeanPart]:
    """The ways to share the work, the best first. A tile is 16 channels of an image."""
    warps, blocks = target.local_size // WARP, tile_count(src.plane, SIDE)
    input_blocks = tile_count(src.slices, SIDE // LANES)
    tiles = dst.geometry.batch * tile_count(dst.slices, SIDE // LANES)

    def part(splits: int) -> MeanPart:
        rounds, steps = tile_count(blocks * splits, warps), input_blocks // splits
        waiting = tile_count(steps, step_depth(steps, 1, 1)) * BATCH_LATENCY
        loading = steps * min(warps, blocks * splits) * (ROW_CYCLES + COLUMN_CYCLES)
        sharing = reduction_cycles(target, splits, 2) + reduction_cycles(target, warps, 1)
        waves = tile_count(tiles, target.compute_units)
        return MeanPart(splits, tiles, waves * (TILE_LATENCY + rounds * max(waiting, loading) + sharing))

    # Split sums are added up once.
    choices = (n for n in SPLITS if n == 1 or (input_blocks % n == 0 and blocks * n <= warps))
    return sorted(map(part, choices), key=lambda p: p.cycles)


@variant("pointwise_mean", "gpu")
def pointwise_mean_mma(request: Request) -> Kernel:
    attributes, src, dst, target = request.node.attributes, request.input(0), request.output, request.target
    assert isinstance(attributes, PointwiseMean)
    part = request.choose_part(mean_parts(src, dst, target))
    input_blocks = tile_count(src.slices, SIDE // LANES)
    packed = pack_fragments(request.constant(1), 1, input_blocks)
    return Kernel(
        "nvidia/pointwise_mean",
        {
            "pointwise_steps": inner_epilogue(attributes.steps),
            "splits": part.splits,
            "depth": step_depth(input_blocks // part.splits, 1, 1),
            "input_blocks": input_blocks,
            "column_tiles": len(packed),
            "src": src,
        },
        (
            request.activation("src", 0),
            request.weights("weights", packed),
            Argument("bias", "float", None, padded_bias(request.constant(2), len(packed) * SIDE)),
        ),
        tiles=part.tiles,
        local_size=target.local_size,
        scratch=max(scratch(target, part.splits, 2), target.local_size),
        macs=src.geometry.pixels * src.channels * dst.channels,
    )
