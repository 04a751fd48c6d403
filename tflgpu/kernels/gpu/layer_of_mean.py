"""A fully connected layer of the mean of an image as one kernel, on GPUs.

It computes shares of the layer's sums: those of some slices of the image, whose means are in no other group's tiles but
those of the same share. So few groups read the same pixels, although none waits for another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tflgpu.graph.ir import EpilogueOp
from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.convolutions import bias_argument
from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.fusing import inner_epilogue
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.packing import pack_dense
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import LOADS_AT_ONCE, fits_local, power_of_two, tile_count
from tflgpu.target import ElementType, Target

LAYER_OF_MEAN = "layer_of_mean"
MOST_WEIGHTS = 16  # vec4s that a work-item holds in registers
MOST_PIXELS = 64  # that a work-item adds up in turn: rounding errors grow with their number


@dataclass(frozen=True)
class LayerOfMean:
    """A fully connected layer of the mean of an image's pixels.

    epilogue: ops on the mean, which read no inputs.
    """

    epilogue: tuple[EpilogueOp, ...]


@dataclass(frozen=True)
class LayerTile(Tile):
    """How many slices of the layer a work-group computes."""

    outputs: int


@dataclass(frozen=True)
class LayerWork:
    """Work of the work-items of a tile.

    slices: of the image, in a share. pixel_sharers, channel_sharers: work-items for the mean of a slice, and for a vec4
    of the layer. pixels, weights: vec4s that each of them loads.
    """

    tiles: int
    slices: int
    pixel_sharers: int
    channel_sharers: int
    pixels: int
    weights: int

    def demand(self, target: Target) -> Demand:
        """Return the demand. Loads of the image wait for memory; those of the weights are hidden."""
        model = target.cost_model
        waiting = Phase(tile_count(self.pixels, LOADS_AT_ONCE), (model.batch_latency,))
        loading = Phase(1, (model.working(target.local_size, self.pixels + self.weights, self.weights, ()),))
        adding = Phase(2, (model.reduction(target.local_size),))
        return Demand(self.tiles, (waiting, loading, adding), model.tile_latency)


def layer_candidates(src: Storage, dst: Storage, target: Target, shares: int) -> list[Candidate[LayerTile, LayerWork]]:
    """Return the tiles of shares of a layer ``dst`` of the mean of ``src``, the fastest first.

    None where a group cannot have a work-item for each slice of a share, or local memory is too small.
    """
    tiles = (LayerTile(1 << n) for n in range(target.local_size.bit_length()))
    counted = ((tile, _work(tile, src, dst, target, shares)) for tile in tiles)
    able = {tile: work for tile, work in counted if _fits(work, target)}
    return ranked(able, able.__getitem__, target)


def _work(tile: LayerTile, src: Storage, dst: Storage, target: Target, shares: int) -> LayerWork:
    slices, size = tile_count(src.slices, shares), target.local_size
    pixel_sharers, channel_sharers = power_of_two(max(1, size // slices)), size // tile.outputs
    return LayerWork(
        tiles=shares * tile_count(dst.slices, tile.outputs),
        slices=slices,
        pixel_sharers=pixel_sharers,
        channel_sharers=channel_sharers,
        pixels=tile_count(src.plane, pixel_sharers),
        weights=tile_count(LANES * slices, channel_sharers),
    )


def _fits(work: LayerWork, target: Target) -> bool:
    in_group = work.slices <= target.local_size and work.weights <= MOST_WEIGHTS and work.pixels <= MOST_PIXELS
    return in_group and fits_local(target, _workspace(work, target))


def _workspace(work: LayerWork, target: Target) -> int:
    """float4 elements of local memory: for sums, and for the means of a share."""
    return target.local_size + work.slices


def _best(request: Request) -> Candidate[LayerTile, LayerWork] | None:
    found = layer_candidates(request.input(0), request.output, request.target, request.shares)
    return next(iter(found), None)


@dataclass(frozen=True, kw_only=True)
class LayerOfMeanParameters(Parameters, template="gpu/layer_of_mean"):
    """Parameters of ``templates/gpu/layer_of_mean.cl.j2``."""

    outputs: int
    slices_of_share: int
    pixel_sharers: int
    channel_sharers: int
    shares: int
    src: Storage
    weights_type: ElementType
    mean_epilogue: Sequence[Mapping[str, object]]


@GPU.lowering(LAYER_OF_MEAN, best=_best)
def layer_of_mean(request: Request) -> Kernel:
    """Lower the node. Inputs: the image [1, height, width, channels]; weights [out, ..., channels], perhaps a bias."""
    attributes, src, dst, target = request.attributes(LayerOfMean), request.input(0), request.output, request.target
    chosen = request.choose_candidate(layer_candidates(src, dst, target, request.shares))
    weights = request.constant(1).reshape(dst.channels, 1, 1, src.channels)
    return Kernel(
        LayerOfMeanParameters(
            outputs=chosen.tile.outputs,
            slices_of_share=chosen.work.slices,
            pixel_sharers=chosen.work.pixel_sharers,
            channel_sharers=chosen.work.channel_sharers,
            shares=request.shares,
            src=src,
            weights_type=target.storage,
            mean_epilogue=inner_epilogue(attributes.epilogue),
        ),
        (
            request.activation("src", 0),
            request.weights("weights", pack_dense(weights, LANES, src.slices * LANES)),
            bias_argument(request, dst.slices * LANES),
        ),
        tiles=chosen.work.tiles // request.shares,
        local_size=target.local_size,
        workspace=_workspace(chosen.work, target),
        macs=src.channels * dst.channels,
    )
