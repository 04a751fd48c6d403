"""Fully connected layers on GPUs: of few rows, of many, and of the mean of an image.

A work-group of the mean's layer computes shares of the layer's sums: those of some slices of the image, whose means
are in no other group's tiles but those of the same share. So few groups read the same pixels, although none waits for
another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tflgpu.graph.ir import Array, EpilogueOp
from tflgpu.graph.layout import LANES
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.convolutions import bias_argument, is_vector_product
from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.fusing import inner_epilogue
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.packing import pack_dense, stored_integers
from tflgpu.kernels.portable.costs import KLoopWork
from tflgpu.kernels.portable.matmul_kernels import (
    ROWS,
    VectorTile,
    choose_with_group,
    vector_candidates,
    vector_product,
)
from tflgpu.kernels.portable.matrix_products import MatrixProduct, MatrixTile, Side, matrix_product, order
from tflgpu.kernels.portable.matrix_products import candidates as product_candidates
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import LOADS_AT_ONCE, fits_local, power_of_two, tile_count
from tflgpu.target import ElementType, Target

ProductTile = VectorTile | MatrixTile


def candidates(
    shape: MatrixProduct, target: Target, *, stored: bool = False
) -> list[Candidate[ProductTile, KLoopWork]]:
    """Return the tiles of both kernels, the fastest first.

    A single row leaves nothing to share but its depth, as long as local memory holds a sum of each work-item. Of
    ``stored`` integers few rows are a vector product, too, which alone reads them: they are the most of what it reads.
    """
    found: list[Candidate[ProductTile, KLoopWork]] = [*vector_candidates(shape, target, in_parts=stored)]
    if shape.rows > (ROWS[-1] if stored else 1) or not found:
        found += product_candidates(shape, target)
    return sorted(found, key=lambda candidate: candidate.cycles)


def _best(request: Request) -> Candidate[ProductTile, KLoopWork] | None:
    """Return the fastest tile; None for shares, where work-groups cannot share a depth."""
    shape = _product(request)
    if request.shares == 1:
        return candidates(shape, request.target, stored=_has_stored_integers(request))[0]
    return next(iter(vector_candidates(shape, request.target, request.shares)), None)


def _has_stored_integers(request: Request) -> bool:
    """Whether the weights of few rows may stay integers in device memory."""
    few = request.output.batch <= ROWS[-1] and request.target.arithmetic != "half"
    return few and stored_integers(request) is not None


def _product(request: Request) -> MatrixProduct:
    """Return a layer as a matrix product whose right side, the weights, lies as the output does."""
    src, dst = request.input(0), request.output
    left, right = Side(False, src.slices, slice_stride=1), Side(False, dst.slices, slice_stride=1)
    depth = request.constant(1).size // dst.channels
    return MatrixProduct(left, right, 1, dst.batch, depth, dst.slices, rows_are_images=True)


@GPU.lowering("convolution", when=is_vector_product, best=_best)
@GPU.lowering("fully_connected", best=_best)
def fully_connected(request: Request) -> Kernel:
    """Return a fully connected layer: a vector product for few rows, else a matrix product."""
    shape, weights = _product(request), request.constant(1).reshape(request.output.channels, -1)
    if request.shares > 1:
        shared = request.choose_candidate(vector_candidates(shape, request.target, request.shares))
        return _vector_kernel(request, request.target, weights, shared.tile)
    chosen, target = choose_with_group(request, partial(candidates, shape, stored=_has_stored_integers(request)))
    tile = chosen.tile
    if isinstance(tile, VectorTile):
        return _vector_kernel(request, target, weights, tile)
    panel = order(shape, tile).neighbours * tile.slices
    packed = request.weights("right", pack_dense(weights[:, None, None, :], panel * LANES, shape.depth))
    in_panels = replace(shape, right=Side(False, panel, slice_stride=1, in_panels=True))
    return matrix_product(request, target, in_panels, tile, (request.activation("left", 0), packed), bias=True)


def _vector_kernel(request: Request, target: Target, weights: Array, tile: VectorTile) -> Kernel:
    """weights: [out, in]. The depth is whole slices of the image; weights of lanes past its last channel are zero."""
    depth = request.input(0).slices * LANES
    shape, stored = replace(_product(request), right=Side(False, 1, slice_stride=depth), depth=depth), None
    if target.arithmetic != "half":
        stored = stored_integers(request)
    if stored is not None:
        packed = stored.weights("right", LANES, depth)
    else:
        packed = request.weights("right", pack_dense(weights[:, None, None, :], LANES, depth))
    factors = request.activation("left", 0), packed
    kernel = vector_product(request, target, shape, tile, factors, bias=True, stored=stored)
    return replace(kernel, macs=request.output.batch * weights.size)


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


def _best_of_mean(request: Request) -> Candidate[LayerTile, LayerWork] | None:
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


@GPU.lowering(LAYER_OF_MEAN, best=_best_of_mean)
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
