"""FILL, SHAPE and RANGE: operators that make tensors from shapes and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, isfinite, prod

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.ops.declaration import ANY, Emitter, Site, declare, numbers, static
from tflgpu.ops.limits import made_reasons
from tflgpu.ops.movement.shaping import reshape_node


def _fill_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 0, "shape")
    if site.constant(0) is not None and min(numbers(site, 0), default=0) < 0:
        yield f"its shape {numbers(site, 0)} has a negative size"
    elif site.constant(0) is not None:
        yield from made_reasons(prod(numbers(site, 0)))
    if site.input(1).size != 1:
        yield f"its value has shape {list(site.input(1).shape)}; one number was expected"


@declare("FILL", versions=5, inputs=2, integers=(0,), types=ANY, reasons=_fill_reasons)
def fill(site: Site, emit: Emitter) -> Tensor:
    """Return a tensor of one value."""
    return emit.node("map", [reshape_node(emit, site.input(1), ())], tuple(numbers(site, 0)))


@declare("ZEROS_LIKE", versions=1, inputs=1, types=ANY)
def zeros_like(site: Site, emit: Emitter) -> Tensor:
    """Give as many zeros as the input has elements."""
    x = site.input(0)
    return emit.node("map", [emit.constant(np.zeros((), x.dtype))], x.shape)


_INDEX_TYPES = {2: np.int32, 4: np.int64}  # by the schema's TensorType


def _shape_reasons(site: Site) -> Iterator[str]:
    if site.options.get("out_type", 0) not in _INDEX_TYPES:
        yield "its result is neither int32 nor int64"


@declare("SHAPE", versions=1, inputs=1, types=ANY, reasons=_shape_reasons)
def shape_(site: Site, emit: Emitter) -> Tensor:
    """Return a constant: shapes are known at compile time."""
    return emit.constant(np.array(site.input(0).shape, _INDEX_TYPES[site.options["out_type"]]))


@declare("RANK", versions=1, inputs=1, types=ANY)
def rank(site: Site, emit: Emitter) -> Tensor:
    """Return a constant, too."""
    return emit.constant(np.array(len(site.input(0).shape), np.int32))


def _range_size(site: Site) -> int | None:
    """How many numbers a RANGE of constants has, None if it is endless, or has no begin."""
    start, limit, delta = (site.known(i).reshape(-1)[0].item() for i in range(3))
    if not all(map(isfinite, (start, limit, delta))):
        return None
    if limit != start and (delta == 0 or (limit > start) != (delta > 0)):
        return None
    return ceil(Fraction(limit - start) / Fraction(delta)) if delta else None


def _range_reasons(site: Site) -> Iterator[str]:
    missing = [text for i, what in enumerate(("start", "limit", "delta")) for text in static(site, i, what)]
    yield from missing
    size = None if missing else _range_size(site)
    if not missing and size is None:
        yield "its numbers are without end"
    elif size is not None:
        yield from made_reasons(size)


@declare("RANGE", versions=2, inputs=3, types=ANY, reasons=_range_reasons)
def range_(site: Site, emit: Emitter) -> Tensor:
    """Numbers in equal steps, which are known when the model is compiled."""
    start, limit, delta = (site.known(i).reshape(-1)[0] for i in range(3))
    return emit.constant(np.arange(start, limit, delta, dtype=start.dtype))
