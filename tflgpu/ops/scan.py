"""CUMSUM and TOPK_V2: results along one axis that depend on what came before them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tflgpu.ir import Tensor
from tflgpu.ops.access import coordinates
from tflgpu.ops.base import NUMBERS, Emitter, Site, declare, static
from tflgpu.ops.kernel import Kernel, Request, items_per_tile, tile_count, variant
from tflgpu.ops.reduction import single_axis, single_axis_reasons

TYPES = frozenset(("float32", "int32", "int64"))


@dataclass(frozen=True)
class CumulativeSum:
    """Along ``axis`` (normal); ``exclusive`` sums end before the element, ``reverse`` ones begin at the last."""

    axis: int
    exclusive: bool
    reverse: bool


@dataclass(frozen=True)
class TopK:
    """The greatest elements of the last axis in descending order, of equal ones the first; or their indices."""

    result: Literal["values", "indices"]


@declare("CUMSUM", versions=1, inputs=2, integers=(1,), types=TYPES, reasons=single_axis_reasons)
def cumsum(site: Site, emit: Emitter) -> Tensor:
    x, axis = site.input(0), single_axis(site)
    assert axis is not None
    exclusive, reverse = (bool(site.options.get(name)) for name in ("exclusive", "reverse"))
    return emit.node("cumulative_sum", [x], x.shape, CumulativeSum(axis, exclusive, reverse))


def _top_k_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "k")
    k, shape = site.constant(1), site.input(0).shape
    if not shape:
        yield "its input has no axes"
    elif k is not None and (k.size != 1 or not 1 <= k.reshape(-1)[0] <= shape[-1]):
        yield f"its k is {k.tolist()} for a last axis of {shape[-1]}"


@declare("TOPK_V2", versions=3, inputs=2, integers=(1,), types=NUMBERS, reasons=_top_k_reasons)
def top_k(site: Site, emit: Emitter) -> tuple[Tensor, Tensor]:
    x, k = site.input(0), site.constant(1)
    assert k is not None
    shape = (*x.shape[:-1], int(k.reshape(-1)[0]))
    values = emit.node("top_k", [x], shape, TopK("values"))
    return values, emit.node("top_k", [x], shape, TopK("indices"), dtype=site.output_types[1])


@variant("cumulative_sum")
def cumulative_sum_kernel(request: Request) -> Kernel:
    """One item is a line of quads along the axis, or of channels."""
    attributes, g, source = request.node.attributes, request.output.geometry, request.input(0)
    assert isinstance(attributes, CumulativeSum)
    along = coordinates(g.shape)[attributes.axis]
    extent = g.slices if along.kind == "c" else g.shape[attributes.axis]
    lines = g.quads // extent
    per_tile = items_per_tile(lines, request.target, 8 * extent)
    return Kernel(
        "cumulative_sum",
        {
            "along": along,
            "extent": extent,
            "lines": lines,
            "exclusive": attributes.exclusive,
            "reverse": attributes.reverse,
            "per_tile": per_tile,
            "src": source,
            "dirty": along.kind == "c",
        },
        (request.activation("src", 0),),
        tiles=tile_count(lines, per_tile),
        local_size=request.target.local_size,
        value_type=source.vector,
    )


@variant("top_k")
def top_k_kernel(request: Request) -> Kernel:
    attributes, g, source = request.node.attributes, request.output.geometry, request.input(0)
    assert isinstance(attributes, TopK)
    per_tile = items_per_tile(g.pixels, request.target, 2 * g.channels * source.channels)
    return Kernel(
        "top_k",
        {"indices": attributes.result == "indices", "per_tile": per_tile, "src": source},
        (request.activation("src", 0),),
        tiles=tile_count(g.pixels, per_tile),
        local_size=request.target.local_size,
        value_type="int" if attributes.result == "indices" else source.vector,
    )
