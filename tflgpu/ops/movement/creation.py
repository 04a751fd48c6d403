"""FILL, SHAPE and RANGE: operators that make tensors from shapes and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, isfinite, prod

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.ops.declaration import ANY, Emitter, Site, declare, numbers, static
from tflgpu.ops.limits import made_reasons
from tflgpu.ops.movement.shaping import Concatenate, reshape_node
from tflgpu.ops.sized import Amount, Number, Refused, Results, SizedOperation, bound, sized_shape


def _fill_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 0, "shape")
    if site.constant(0) is not None and min(numbers(site, 0), default=0) < 0:
        yield f"its shape {numbers(site, 0)} has a negative size"
    elif site.constant(0) is not None:
        yield from made_reasons(prod(numbers(site, 0)))
    if site.input(1).size != 1:
        yield f"its value has shape {list(site.input(1).shape)}; one number was expected"


def _sized_fill(op: SizedOperation) -> Results | None:
    if op.site.constant(0) is not None:
        return None
    shape, known = sized_shape(op, op.amounts(0))
    if op.input(1).size != 1 or op.open(1):
        raise Refused("its value is not one number")
    if not known:
        raise Refused("its shape is computed")
    value = op.emit.node("map", [reshape_node(op.emit, op.input(1), ())], tuple(shape))
    return op.noted(op.computed(value, known), known)


@declare("FILL", versions=5, inputs=2, integers=(0,), types=ANY, reasons=_fill_reasons, sized=_sized_fill)
def fill(site: Site, emit: Emitter) -> Tensor:
    """Return a tensor of one value."""
    return emit.node("map", [reshape_node(emit, site.input(1), ())], tuple(numbers(site, 0)))


def _sized_zeros(op: SizedOperation) -> Results | None:
    known = op.open(0)
    return op.noted(op.computed(op.declared()[0], known), known) if known else None


@declare("ZEROS_LIKE", versions=1, inputs=1, types=ANY, sized=_sized_zeros)
def zeros_like(site: Site, emit: Emitter) -> Tensor:
    """Give as many zeros as the input has elements."""
    x = site.input(0)
    return emit.node("map", [emit.constant(np.zeros((), x.dtype))], x.shape)


_INDEX_TYPES = {2: np.int32, 4: np.int64}  # by the schema's TensorType


def _shape_reasons(site: Site) -> Iterator[str]:
    if site.options.get("out_type", 0) not in _INDEX_TYPES:
        yield "its result is neither int32 nor int64"


def _sized_shape(op: SizedOperation) -> Results | None:
    known, shape = op.open(0), op.input(0).shape
    if not known:
        return None
    dtype = "int64" if op.site.options.get("out_type") == 4 else "int32"
    parts: list[Tensor] = []
    for axis, size in enumerate(shape):
        part = known[axis].tensor if axis in known else op.emit.constant(np.array([size], np.int32))
        parts.append(reshape_node(op.emit, part, (1,)))
    joined = parts[0] if len(parts) == 1 else op.emit.node("concatenate", parts, (len(parts),), Concatenate(0))
    widen = (EpilogueOp("to_long", (Value(0),)),) if dtype == "int64" else ()
    result = op.emit.node("map", [joined], joined.shape, None, widen, dtype)
    elements = np.empty(len(shape), object)
    elements[:] = [op.sizes.size(known[axis]) if axis in known else Amount(d) for axis, d in enumerate(shape)]
    op.sizes.elements[result.id] = elements
    return result


@declare("SHAPE", versions=1, inputs=1, types=ANY, reasons=_shape_reasons, sized=_sized_shape)
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


def _sized_range(op: SizedOperation) -> Results | None:
    if not any(op.site.constant(i) is None for i in range(3)):
        return None
    dtype = op.input(0).dtype
    if dtype not in ("int32", "int64"):
        raise Refused("its numbers are no integers")
    (start,), (limit,), (delta,) = (op.amounts(i) for i in range(3))
    step = delta.known
    if not step:
        raise Refused("its step is computed, or 0")
    exact = limit.plus(start, -1)
    if exact is not None and abs(step) == 1:
        count = exact.times(step)
        most = bound(count)
        size = op.number(count, most) if count.known is None else None
    else:
        far, near = (limit.high, start.low) if step > 0 else (start.high, limit.low)
        if far is None or near is None:
            raise Refused("nothing says how large its result can be")
        most = max(0, -((near - far) // abs(step)))
        size = _steps(op, start, limit, step, most)
    known = {} if size is None else {0: size}
    if start.known is not None:
        values = op.emit.constant((start.known + step * np.arange(most)).astype(dtype))
        return op.noted(op.computed(values, known), known)
    if most < 1:
        raise Refused("its result is always empty")
    steps = op.emit.constant((step * np.arange(most)).astype(np.int32)), op.sizes.scalar(op.emit, start)
    added = (
        EpilogueOp("add", (Value(0), Input(1))),
        *((EpilogueOp("to_long", (Value(1),)),) if dtype == "int64" else ()),
    )
    return op.noted(op.emit.node("map", steps, (most,), None, added, dtype), known)


def _steps(op: SizedOperation, start: Amount, limit: Amount, step: int, most: int) -> Number:
    """How many steps lead from one amount to another, ``most`` at most."""
    if most < 1:
        raise Refused("its result is always empty")

    def make() -> Number:
        ends = [
            op.emit.constant(np.array(end.known, np.int32)) if end.known is not None else op.sizes.scalar(op.emit, end)
            for end in (limit, start)
        ]
        others = (op.emit.constant(np.array(n, np.int32)) for n in (step, 0, most))
        steps = (
            EpilogueOp("sub", (Input(1), Value(0))),  # its negative, so that rounding down rounds the count up
            EpilogueOp("floor_div", (Value(1), Input(2))),
            EpilogueOp("sub", (Input(3), Value(2))),
            EpilogueOp("maximum", (Value(3), Input(3))),
            EpilogueOp("minimum", (Value(4), Input(4))),
        )
        tensor = op.emit.node("map", [*ends, *others], (), None, steps, "int32")
        return Number(tensor.id, 0, tensor, 0, most)

    return op.sizes.once(("steps", start, limit, step), make)


@declare("RANGE", versions=2, inputs=3, types=ANY, reasons=_range_reasons, sized=_sized_range)
def range_(site: Site, emit: Emitter) -> Tensor:
    """Numbers in equal steps, which are known when the model is compiled."""
    start, limit, delta = (site.known(i).reshape(-1)[0] for i in range(3))
    return emit.constant(np.arange(start, limit, delta, dtype=start.dtype))
