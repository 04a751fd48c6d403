"""Kernels of nodes that others are divided into: shares of sums, and sums of the products of taps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.architecture import sharing_lowering
from tflgpu.kernels.candidates import Candidate, Tile, ranked
from tflgpu.kernels.convolutions import Phases, phases_between
from tflgpu.kernels.demand import Demand, Phase
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.few_channels import TapSums
from tflgpu.kernels.kernel import Argument, Kernel, Parameters, Shares, Storage
from tflgpu.kernels.packing import padded_bias
from tflgpu.kernels.portable.costs import KLoopWork
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import SPLIT_K, can_split, split_workspace, tile_count
from tflgpu.ops.image.window import Window
from tflgpu.target import Target


@GPU.lowering("shares")
def shares_kernel(request: Request) -> Kernel:
    """Return the kernel of a node that computes shares of a sum."""
    shares = request.attributes(Shares)
    storage = {**request.storage, shares.node.output: request.output.share(shares.count)}
    whole = replace(request, node=shares.node, storage=storage, shares=shares.count)
    lowering = sharing_lowering(whole)
    assert lowering is not None
    kernel = lowering.lower(whole)
    return replace(kernel, tiles=kernel.tiles * shares.count, shares=shares.count)


@dataclass(frozen=True)
class TapSumsTile(Tile):
    """One vec4 of a work-item, whose taps ``split_k`` work-items share."""

    split_k: int


def _phases(request: Request) -> Phases | None:
    convolution = request.attributes(TapSums).convolution
    return phases_between(convolution, request.input(0).geometry, request.output.geometry)


def _items(request: Request) -> int:
    """One for each vec4; of a transposed convolution, of all pixels of its phases."""
    phases, dst = _phases(request), request.output
    return dst.vec4s if phases is None else dst.batch * dst.slices * phases.count * phases.plane


def _candidates(request: Request) -> list[Candidate[TapSumsTile, KLoopWork]]:
    sums, target, dst = request.attributes(TapSums), request.target, request.output
    phases, channels = _phases(request), min(dst.channels, LANES)
    taps = prod((phases.window_of_phase if phases else sums.convolution.window).kernel)

    def work(tile: TapSumsTile) -> KLoopWork:
        """Return the work; a step is one tap.

        A load of a number moves as much as that of a vec4, as neighbours read each fourth one.
        """
        return _TapSumsWork(
            tiles=tile_count(_items(request) * tile.split_k, target.local_size),
            k_steps=taps,
            loads=channels if dst.channels % LANES else 1,
            products=0,
            accumulators=1,
            split_k=tile.split_k,
        )

    tiles = (TapSumsTile(split_k) for split_k in SPLIT_K if split_k <= taps and can_split(target, split_k, 1))
    return ranked(tiles, work, target)


class _TapSumsWork(KLoopWork):
    def demand(self, target: Target) -> Demand:
        """Work-groups of launches hide what others wait for, but the kernel takes at least as long as one of them."""
        whole = super().demand(target)
        if target.executor != "launch":
            return whole
        model = target.cost_model
        busy = model.working(target.local_size, self.loads, self.products, self.tile)
        loop = Phase(tile_count(self.k_steps, self.split_k), (busy,))
        alone = replace(whole, tiles=1).cycles(target)
        return Demand(self.tiles, (loop,), model.tile_latency, resident=self.tiles, least=alone)


def _best(request: Request) -> Candidate[TapSumsTile, KLoopWork] | None:
    return _candidates(request)[0] if request.shares == 1 else None


@dataclass(frozen=True, kw_only=True)
class TapSumsParameters(Parameters, template="gpu/tap_sums", stores_once=True):
    """Parameters of ``templates/gpu/tap_sums.cl.j2``."""

    window: Window
    phases: Phases | None
    split_k: int
    items: Size
    per_tile: Size
    products: Storage
    scale: float


@GPU.lowering("tap_sums", best=_best)
def tap_sums(request: Request) -> Kernel:
    """Return the second kernel of kn2row: it adds up the products of the taps of each window (col2im)."""
    sums, target, dst, products = request.attributes(TapSums), request.target, request.output, request.input(0)
    tile = request.choose_candidate(_candidates(request)).tile
    per_tile, items = target.local_size // tile.split_k, _items(request)
    return Kernel(
        TapSumsParameters(
            window=sums.convolution.window,
            phases=_phases(request),
            split_k=tile.split_k,
            items=items,
            per_tile=per_tile,
            products=products,
            scale=sums.scale,
        ),
        (
            request.activation("products", 0),
            Argument("bias", "float", None, padded_bias(request.optional_constant(1), dst.slices * LANES)),
        ),
        tiles=tile_count(items, per_tile),
        local_size=target.local_size,
        workspace=split_workspace(target, tile.split_k, 1),
    )
