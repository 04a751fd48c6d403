"""MEAN and SOFTMAX: each result depends on many elements. Both accumulate in float whatever the storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tflgpu.ir import Tensor
from tflgpu.ops.access import access
from tflgpu.ops.base import Emitter, Site, declare, normal_axis, static
from tflgpu.ops.kernel import Kernel, Request, items_per_tile, tile_count, variant
from tflgpu.ops.shaping import reshape_node


@dataclass(frozen=True)
class Reduce:
    """Over ``axes`` (normal, sorted), which stay with size 1."""

    function: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Softmax:
    """Over the last axis: exp(beta * x) / sum(exp(beta * x))."""

    beta: float


def _axes(site: Site) -> list[int | None]:
    axes = site.constant(1)
    return [] if axes is None else [normal_axis(int(a), len(site.input(0).shape)) for a in axes.reshape(-1)]


def _reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "axes")
    if None in _axes(site):
        yield f"its axes are not all axes of its input {list(site.input(0).shape)}"


@declare("MEAN", versions=3, inputs=2, integers=(1,), reasons=_reasons)
def mean(site: Site, emit: Emitter) -> Tensor:
    x, axes = site.input(0), tuple(sorted({a for a in _axes(site) if a is not None}))
    kept = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
    y = emit.node("reduce", [x], kept, Reduce("mean", axes))
    if site.options.get("keep_dims"):
        return y
    return reshape_node(emit, y, tuple(d for i, d in enumerate(x.shape) if i not in axes))


@declare("SOFTMAX", versions=3, inputs=1)
def softmax(site: Site, emit: Emitter) -> Tensor:
    x = site.input(0)
    return emit.node("softmax", [x], x.shape, Softmax(float(site.options.get("beta", 1.0))))


@variant("reduce")
def reduce_kernel(request: Request) -> Kernel:
    attributes, g, source = request.node.attributes, request.output.geometry, request.input(0).geometry
    assert isinstance(attributes, Reduce)
    rank = len(source.shape)
    channels = rank - 1 in attributes.axes
    loops = [(source.shape[a], source.axis_strides[a]) for a in attributes.axes if a < rank - 1]
    if channels:
        loops.append((source.slices, source.plane))
    count = prod(extent for extent, _ in loops)
    kept = access("src", request.input(0).type, source.shape, g.shape, fixed=attributes.axes)
    shared, tiles, per_tile = _share(request, g.quads, count)
    return Kernel(
        "reduce",
        {
            "kept": kept,
            "loops": loops,
            "count": count,
            "channels": channels,
            "factor": 1 / prod(source.shape[a] for a in attributes.axes),
            "shared": shared,
            "per_tile": per_tile,
            "src": request.input(0),
        },
        (request.activation("src", 0),),
        tiles=tiles,
        local_size=request.target.local_size,
        scratch=request.target.local_size if shared else 0,
    )


def _share(request: Request, items: int, length: int) -> tuple[bool, int, int]:
    """Whether a work-group shares one item of ``length`` elements, the number of tiles, and items of a tile."""
    target = request.target
    if target.family == "gpu" and length >= target.local_size:
        return True, items, 1
    per_tile = items_per_tile(items, target, 4 * length)
    return False, tile_count(items, per_tile), per_tile


@variant("softmax")
def softmax_kernel(request: Request) -> Kernel:
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, Softmax)
    shared, tiles, per_tile = _share(request, g.pixels, g.slices)
    return Kernel(
        "softmax",
        {"beta": attributes.beta, "shared": shared, "per_tile": per_tile, "src": request.input(0)},
        (request.activation("src", 0),),
        tiles=tiles,
        local_size=request.target.local_size,
        scratch=request.target.local_size if shared else 0,
    )
