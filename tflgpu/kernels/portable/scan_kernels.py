"""Kernels of CUMSUM, TOPK_V2, BUCKETIZE and WHERE, and of the nodes that sort long rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2

from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import Coordinate, coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.portable.long_rows import Merge, Runs
from tflgpu.kernels.portable.reduction_kernels import SharedParameters, share_results, shared_kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import LOADS_AT_ONCE, tile_count
from tflgpu.ops.arithmetic.scan import CumulativeSum, TopK


@dataclass(frozen=True, kw_only=True)
class CumulativeSumParameters(SharedParameters, template="portable/cumulative_sum", stores_once=True):
    """Parameters of ``templates/portable/cumulative_sum.cl.j2``."""

    along: Coordinate
    extent: int
    lines: int
    exclusive: bool
    reverse: bool
    run: int
    dirty: bool


@PORTABLE.lowering("cumulative_sum")
def cumulative_sum_kernel(request: Request) -> Kernel:
    """Return a line of vec4s along the axis, or of channels, is that of a work-item, or of some that share it."""
    attributes, g = request.attributes(CumulativeSum), request.output.geometry
    source, target = request.input(0), request.target
    along = coordinates(g.shape)[attributes.axis]
    extent, on_gpu = g.slices if along.kind == "c" else g.shape[attributes.axis], target.family == "gpu"
    lines = g.vec4s // extent
    run = min(LOADS_AT_ONCE, max(1, extent // target.cost_model.lockstep)) if on_gpu else 1
    # The scan of a large work-group waits far longer at its barriers.
    sharing = share_results(request, lines, tile_count(extent, run) if on_gpu else 2 * extent, large=False)
    if sharing.sharers == 1 and on_gpu:
        run = min(LOADS_AT_ONCE, extent)
    parameters = CumulativeSumParameters(
        along=along,
        extent=extent,
        lines=lines,
        exclusive=attributes.exclusive,
        reverse=attributes.reverse,
        run=run,
        src=source,
        dirty=along.kind == "c",
    )
    return shared_kernel(request, parameters, sharing, value_type=source.vector)


@dataclass(frozen=True, kw_only=True)
class TopKParameters(ItemParameters, template="portable/top_k", stores_once=True):
    """Parameters of ``templates/portable/top_k.cl.j2``."""

    indices: bool
    src: Storage


@PORTABLE.lowering("top_k")
def top_k_kernel(request: Request) -> Kernel:
    """Return the greatest elements of each pixel, or their places."""
    attributes, g, source = request.attributes(TopK), request.output.geometry, request.input(0)
    return item_kernel(
        request,
        TopKParameters(
            indices=attributes.result == "indices",
            src=source,
        ),
        [request.activation("src", 0)],
        2 * g.channels * source.channels,
        items=g.pixels,
        value_type="int" if attributes.result == "indices" else source.vector,
    )


@dataclass(frozen=True, kw_only=True)
class FirstAboveParameters(ItemParameters, template="portable/first_above", stores_once=True):
    """Parameters of ``templates/portable/first_above.cl.j2``."""

    src: Storage
    dirty: bool = True  # past the last place the search ends there


@PORTABLE.lowering("first_above")
def first_above_kernel(request: Request) -> Kernel:
    """Return a binary search for each place of a row."""
    source = request.input(0)
    cost = 8 * source.channels.bit_length()
    return item_kernel(
        request, FirstAboveParameters(src=source), [request.activation("src", 0)], cost, value_type="int"
    )


@dataclass(frozen=True, kw_only=True)
class BucketsParameters(ItemParameters, template="portable/buckets", stores_once=True):
    """Parameters of ``templates/portable/buckets.cl.j2``."""

    src: Storage
    count: int
    dirty: bool = True


@PORTABLE.lowering("buckets")
def buckets_kernel(request: Request) -> Kernel:
    """Return a binary search for each element."""
    count = request.shape(1).channels
    parameters = BucketsParameters(src=request.input(0), count=count)
    arguments = [request.activation("src", 0), request.operand("boundaries", 1)]
    return item_kernel(request, parameters, arguments, 16 * count.bit_length(), value_type="int")


# vec4s that an item merges after its bisection. On CPUs the bisection is a small part of the time.
LENGTHS = {"cpu": 64, "gpu": 2}

# Rough operations: of merging an element, and of comparing one.
MERGING, COMPARING = 8, 4


# Channels that are compared at once. PoCL's compiler fails at comparisons of 16, and Oclgrind at sums of any.
COMPARED = LANES


@dataclass(frozen=True, kw_only=True)
class RunsParameters(ItemParameters):
    """Parameters of templates that go through runs."""

    block: int
    runs: int
    src: Storage


@dataclass(frozen=True, kw_only=True)
class RankedRunsParameters(RunsParameters, template="sorting/ranked_runs"):
    """Parameters of ``templates/sorting/ranked_runs.cl.j2``."""

    lanes: int = COMPARED


@dataclass(frozen=True, kw_only=True)
class SortedRunsParameters(RunsParameters, template="sorting/sorted_runs"):
    """Parameters of ``templates/sorting/sorted_runs.cl.j2``."""


@dataclass(frozen=True, kw_only=True)
class SelectedRunsParameters(RunsParameters, template="sorting/selected_runs"):
    """Parameters of ``templates/sorting/selected_runs.cl.j2``."""

    lanes: int = COMPARED


@PORTABLE.lowering("ranked_runs")
def ranked_runs_kernel(request: Request) -> Kernel:
    """Return the rank of each element within its run."""
    source = request.input(0)
    return _kernel_of_runs(request, RankedRunsParameters, source.pixels * source.channels, COMPARING)


@PORTABLE.lowering("sorted_runs")
def sorted_runs_kernel(request: Request) -> Kernel:
    """Places of a run's elements, the greatest first."""
    return _kernel_of_runs(request, SortedRunsParameters, request.output.pixels, MERGING)


@PORTABLE.lowering("selected_runs")
def selected_runs_kernel(request: Request) -> Kernel:
    """Places of the greatest elements of each run."""
    return _kernel_of_runs(request, SelectedRunsParameters, request.output.pixels, 1)


def _kernel_of_runs(request: Request, made: type[RunsParameters], items: int, operations: int) -> Kernel:
    """operations: for each element of a run."""
    source, block = request.input(0), request.attributes(Runs).block
    parameters = made(block=block, runs=tile_count(source.channels, block), src=source)
    arguments = [request.activation("src", 0)]
    return item_kernel(request, parameters, arguments, operations * block, items=items, value_type="int")


@dataclass(frozen=True, kw_only=True)
class MergedRunsParameters(ItemParameters, template="sorting/merged_runs", stores_once=True):
    """Parameters of ``templates/sorting/merged_runs.cl.j2``."""

    block: int
    kept: int
    order: Storage
    runs_before: int
    runs: int
    length: int
    pieces: int
    src: Storage
    dirty: bool = True


@PORTABLE.lowering("merged_runs")
def merged_runs_kernel(request: Request) -> Kernel:
    """Two sorted runs as one."""
    attributes, source, output = request.attributes(Merge), request.input(0), request.output
    length = min(LENGTHS[request.target.family], output.slices)
    pieces, before = tile_count(output.slices, length), tile_count(source.channels, attributes.block)
    return item_kernel(
        request,
        MergedRunsParameters(
            block=attributes.block,
            kept=min(attributes.block, request.input(1).channels),
            order=request.input(1),
            runs_before=before,
            runs=tile_count(before, 2),
            length=length,
            pieces=pieces,
            src=source,
        ),
        [request.activation("src", 0), request.activation("order", 1)],
        int(MERGING * (4 * length + log2(4 * output.slices))),
        items=output.pixels * pieces,
        value_type="int",
    )
