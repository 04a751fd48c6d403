"""Operators whose results get sizes that only a run can tell, and operators that do more with such sizes than pass on.

A rule gives the results of an operator, whose open axes it notes; None if the operator's own declaration does it. It
raises Refused where the device cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tflgpu.frontend.run_time_sizes.amounts import Amount, Number, amount_of
from tflgpu.frontend.run_time_sizes.open_axes import Open, Refused, Sizes
from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.ops import Emitter, Site, find_operator
from tflgpu.ops.arithmetic.reduction import reduce_node
from tflgpu.ops.arithmetic.scan import CumulativeSum, true_places
from tflgpu.ops.arithmetic.sorting import order_of
from tflgpu.ops.declaration import NUMBERS
from tflgpu.ops.limits import made_reasons
from tflgpu.ops.movement.gather import Digit, Gather, Lookup, Position, follow
from tflgpu.ops.movement.scatter import scattered, segments, short
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange, reshape_node
from tflgpu.ops.movement.slicing import has_mask, sliced_axes

Results = Tensor | Sequence[Tensor]

REST = -1  # as a size: all that there is


@dataclass(frozen=True)
class Operation:
    """An operator, what it adds to the graph, and what is known of sizes."""

    site: Site
    emit: Emitter
    sizes: Sizes

    def input(self, index: int) -> Tensor:
        """Return an input that is there."""
        return self.site.input(index)

    def open(self, index: int) -> Open:
        """Return the open axes of an input."""
        return self.sizes.of(self.site.optional(index))

    def amounts(self, index: int) -> list[Amount]:
        """Return the elements of an input of few integers."""
        if self.open(index):
            raise Refused(f"input {index} has a size that only a run can tell")
        found = self.sizes.amounts(self.input(index))
        if found is None:
            given = self.site.constant(index)
            if given is None or given.size:
                raise Refused(f"input {index} is no list of few integers")
            return []
        return found

    def number(self, amount: Amount, most: int) -> Number:
        """Return an amount as a size from 0 to ``most``."""
        if most < 1:
            raise Refused("its result is always empty")
        return self.sizes.number(self.emit, amount, most)

    def noted(self, result: Tensor, known: Open) -> Tensor:
        """Return ``result``, whose open axes are these."""
        if made := [*made_reasons(result.size)] if result.size > _most(self.site) else []:
            raise Refused(made[0])
        self.sizes.open[result.id] = known
        return result

    def declared(self, **inputs: Tensor) -> list[Tensor]:
        """Return what the operator's declaration gives with other inputs, by number after an underscore."""
        op, _ = find_operator(self.site.code)
        assert op is not None
        given = [inputs.get(f"_{i}", t) for i, t in enumerate(self.site.inputs)]
        site = replace(self.site, inputs=tuple(given))
        if reasons := op.obstacles(site):
            raise Refused(reasons[0])
        results = op.emit(site, self.emit)
        return [results] if isinstance(results, Tensor) else list(results)

    def computed(self, x: Tensor, known: Open) -> Tensor:
        """``x`` as something that a run computes: what is constant seems to have a size that is known."""
        axis = min(known)
        self.sizes.open[x.id] = known
        masked = self.sizes.masked(self.emit, x, (axis,), 0)
        self.sizes.open[masked.id] = known
        return masked


def _most(site: Site) -> int:
    return max((t.size for t in site.inputs if t is not None), default=0)


Rule = Callable[[Operation], Results | None]

RULES: dict[str, Rule] = {}


def rule(*codes: str) -> Callable[[Rule], Rule]:
    """Register the rule of operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(codes, function))
        return function

    return register


@rule("SHAPE")
def _shape(op: Operation) -> Results | None:
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


@rule("TOPK_V2")
def _top_k(op: Operation) -> Results | None:
    x, last = op.input(0), len(op.input(0).shape) - 1
    known = dict(op.open(0))
    if op.site.constant(1) is not None and last not in known:
        return None
    if last < 0 or len(op.amounts(1)) != 1:
        raise Refused("its k is not one number, or its input has no axes")
    (k,) = op.amounts(1)
    if k.known is not None:
        raise Refused("it takes a known number of elements of a size that only a run can tell")
    if last in known:
        least = np.nan if np.dtype(x.dtype).kind == "f" else np.iinfo(x.dtype).min
        x = op.sizes.masked(op.emit, x, (last,), least)
    size = op.number(k, x.shape[-1])
    most = op.emit.constant(np.array(min(x.shape[-1], size.high or x.shape[-1]), np.int32))
    known[last] = size
    return [op.noted(result, known) for result in op.declared(_0=x, _1=most)]


@rule("WHERE")
def _where(op: Operation) -> Results | None:
    if len(op.site.inputs) != 1 or op.site.inputs[0] is None:
        raise Refused("it has not one input")
    condition = op.input(0)
    shape = condition.shape
    if condition.dtype not in ("bool", "float32", "int32") or condition.size == 0 or not shape:
        raise Refused(f"its condition is {condition.dtype} of shape {list(shape)}")
    key = "where", condition.id
    condition = op.sizes.masked(op.emit, condition, op.open(0), 0)
    emit = op.emit
    places, last = true_places(emit, condition)
    size = op.sizes.once(key, lambda: Number(last.id, 0, last, 0, condition.size))
    long = EpilogueOp("to_long", (Value(0),))
    if len(shape) == 1:
        result = emit.node("map", [places], places.shape, None, (long,), "int64")
        return op.noted(reshape_node(emit, result, (condition.size, 1)), {0: size})
    strides = np.array([prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int32)
    columns = emit.node("map", [reshape_node(emit, places, (condition.size, 1))], (condition.size, len(shape)))
    others = emit.constant(strides.reshape(1, -1)), emit.constant(np.array(shape, np.int32).reshape(1, -1))
    split = EpilogueOp("floor_div", (Value(0), Input(1))), EpilogueOp("floor_mod", (Value(1), Input(2)))
    wide = EpilogueOp("to_long", (Value(2),))
    return op.noted(emit.node("map", [columns, *others], columns.shape, None, (*split, wide), "int64"), {0: size})


@dataclass(frozen=True)
class _Taken:
    """A part of an axis: ``extent`` elements at most, from ``start`` on; of them ``size``, if that is open."""

    start: int | Amount
    extent: int
    size: Number | None = None


@rule("SLICE")
def _slice(op: Operation) -> Results | None:
    x, known = op.input(0), op.open(0)
    given = op.site.constant(2)
    if not known and given is not None and (op.site.constant(1) is not None or REST not in given.reshape(-1)):
        return None
    begins, wanted = op.amounts(1), op.amounts(2)
    if (len(begins), len(wanted)) != (len(x.shape), len(x.shape)):
        raise Refused("its begin and size do not fit its input")
    taken = [_sliced(op, *each) for each in zip(range(len(x.shape)), begins, wanted, strict=True)]
    return _cut(op, x, taken, op.input(1))


def _sliced(op: Operation, axis: int, begin: Amount, wanted: Amount) -> _Taken:
    extent, size = op.input(0).shape[axis], op.open(0).get(axis)
    start = begin.known
    if start is not None and not 0 <= start <= extent:
        raise Refused(f"it begins at {start} of axis {axis}")
    if size is not None:
        if start is None or (wanted.known != REST and (start or wanted != op.sizes.size(size))):
            raise Refused("it takes a part of a size that only a run can tell")
        return _from(op, size, extent, start)
    if wanted.known is not None and wanted.known != REST:
        if wanted.known < 0 or (start or 0) + wanted.known > extent:
            raise Refused(f"it takes {wanted.known} elements of axis {axis}")
        return _Taken(begin if start is None else start, wanted.known)
    if start is None:
        if wanted.known != REST and (wanted.low is None or wanted.low < 0):
            raise Refused("where it begins and how much it takes are computed")
        rest = Amount(extent).plus(begin, -1) if wanted.known == REST else wanted
        assert rest is not None
        return _Taken(begin, extent, op.number(rest, extent))
    if wanted.known == REST:
        return _Taken(start, extent - start)
    most = extent - start if wanted.high is None else min(extent - start, wanted.high)
    if wanted.low is None or wanted.low < 0:
        return _Taken(start, most, _wrapped(op, wanted, extent - start, most, adds=False))
    return _Taken(start, most, op.number(wanted, most))


def _wrapped(op: Operation, amount: Amount, by: int, most: int, *, adds: bool) -> Number:
    """Return an amount as a size; where it is negative, ``by`` in its place, or added to it."""
    if most < 1:
        raise Refused("its result is always empty")
    emit = op.emit

    def make() -> Number:
        scalar = op.sizes.scalar(emit, amount)
        zero, other, limit = (emit.constant(np.array(v, np.int32)) for v in (0, by, most))
        wrapped = EpilogueOp("add", (Value(0), Input(2))) if adds else EpilogueOp("maximum", (Input(2), Input(2)))
        steps = (
            wrapped,
            EpilogueOp("less", (Value(0), Input(1))),
            EpilogueOp("select", (Value(2), Value(1), Value(0))),
            EpilogueOp("maximum", (Value(3), Input(1))),
            EpilogueOp("minimum", (Value(4), Input(3))),
        )
        tensor = emit.node("map", [scalar, zero, other, limit], (), None, steps, "int32")
        return Number(tensor.id, 0, tensor, 0, most)

    return op.sizes.once(("wrapped", amount, by, most, adds), make)


def _from(op: Operation, size: Number, extent: int, start: int, stop: int | None = None) -> _Taken:
    """Return what is taken of an open axis from ``start`` up to ``stop``."""
    most = (extent if stop is None else min(stop, extent)) - start
    if start == 0 and most == extent:
        return _Taken(0, extent, size)
    return _up_to(op, start, op.sizes.size(size), most)


def _up_to(op: Operation, start: int, end: Amount, most: int) -> _Taken:
    """Return what is taken of an axis from ``start`` up to an end that only a run can tell: ``most`` elements at
    most."""
    size = end.plus(Amount(start), -1)
    assert size is not None
    return _Taken(start, most, op.number(size, most))


def _cut(op: Operation, x: Tensor, taken: Sequence[_Taken], begin: Tensor) -> Tensor:
    """Return a part of each axis. begin: has the starts that only a run can tell."""
    shape = tuple(each.extent for each in taken)
    if 0 in shape:
        raise Refused("its result is always empty")
    known = {axis: each.size for axis, each in enumerate(taken) if each.size is not None}
    starts = [each.start for each in taken]
    if all(isinstance(start, int) for start in starts):
        maps = tuple(AxisMap(axis, start) for axis, start in enumerate(starts) if isinstance(start, int))
        return op.noted(op.emit.node("rearrange", [x], shape, Rearrange(maps)), known)
    positions = []
    for axis, start in enumerate(starts):
        if isinstance(start, int):
            positions.append(Position((Digit(axis),), start))
        else:
            room = x.shape[axis] - (0 if axis in known else shape[axis])
            positions.append(Position((Digit(axis), Lookup(1, (AxisMap(None, axis),), room))))
    return op.noted(op.emit.node("gather", [x, begin], shape, Gather(tuple(positions), fill=0)), known)


@rule("STRIDED_SLICE")
def _strided_slice(op: Operation) -> Results | None:
    site, x, known = op.site, op.input(0), op.open(0)
    declared, _ = find_operator("STRIDED_SLICE")
    assert declared is not None
    if not known and not declared.obstacles(site):
        return None
    if site.options.get("offset") or site.constant(3) is None:
        raise Refused("its strides are computed")
    begins, ends, strides = (op.amounts(i) for i in (1, 2, 3))
    if len({len(begins), len(ends), len(strides)}) != 1 or any(s.known != 1 for s in strides):
        raise Refused("it takes not all that lies between two places")
    axes, rank = sliced_axes(site)
    taken: list[_Taken] = []
    kept: list[int] = []
    for axis, of in enumerate(axes):
        size = known.get(axis)
        if of.entry is None:
            taken.append(_Taken(0, of.size, size))
        else:
            begin = Amount(0) if has_mask(site, "begin", of.entry) else begins[of.entry]
            end = None if has_mask(site, "end", of.entry) else ends[of.entry]
            taken.append(_between(op, of.size, size, begin, end, of.axis is None))
        if of.axis is not None:
            kept.append(axis)
    part = _cut(op, x, taken, x)
    opened = op.sizes.of(part)
    sizes: list[int] = [1] * rank
    found: dict[int, Number] = {}
    for axis in kept:
        place = axes[axis].axis
        assert place is not None
        sizes[place] = part.shape[axis]
        if axis in opened:
            found[place] = opened[axis]
    return op.noted(reshape_node(op.emit, part, tuple(sizes)), found)


def _between(op: Operation, extent: int, size: Number | None, begin: Amount, end: Amount | None, one: bool) -> _Taken:
    """Return what is taken of an axis between two places, or one element at ``begin``."""
    start = begin.known
    if start is None or (size is not None and (start < 0 or one)):
        raise Refused("where it begins is computed, or it begins in a size that only a run can tell")
    if one:
        return _Taken(min(slice(start, None).indices(extent)[0], extent - 1), 1)
    start = slice(start, None).indices(extent)[0]
    if size is not None:
        if end is None or end == op.sizes.size(size):
            return _from(op, size, extent, start)
        if end.known is None:
            raise Refused("it ends in a size that only a run can tell at a place that is computed")
        if end.known >= 0:
            return _from(op, size, extent, start, end.known)
        last = op.sizes.size(size).plus(end)
        assert last is not None
        return _up_to(op, start, last, extent + end.known - start)
    if end is None or end.known is not None:
        return _Taken(start, len(range(start, slice(None, end.known if end else None).indices(extent)[1])))
    most = extent - start if end.high is None else min(end.high, extent) - start
    if end.low is None or end.low < 0:
        if start:
            raise Refused("its end is computed")
        return _Taken(start, most, _wrapped(op, end, extent, most, adds=True))
    return _up_to(op, start, end, most)


@rule("RESHAPE")
def _reshape(op: Operation) -> Results | None:
    x, known = op.input(0), op.open(0)
    if not known and (op.site.optional(1) is None or op.site.constant(1) is not None):
        return None
    if op.site.optional(1) is not None:
        wanted = op.amounts(1)
    else:
        wanted = [Amount(int(size)) for size in op.site.options.get("new_shape", ())]
    places = [i for i, amount in enumerate(wanted) if amount.known is None or amount.known == REST]
    if len(places) != 1:
        raise Refused("its shape has not one size that only a run can tell")
    (place,) = places
    sizes = [amount.offset for amount in wanted]
    rest = prod(sizes[:place]) * prod(sizes[place + 1 :])
    if not known:
        if rest < 1 or x.size % rest:
            raise Refused("the number of elements of its input is no multiple of the product of its known sizes")
        return op.noted(reshape_node(op.emit, x, (*sizes[:place], x.size // rest, *sizes[place + 1 :])), {})
    first = next((i for i, size in enumerate(x.shape) if size != 1 or i in known), 0)
    if set(known) != {first} or any(size != 1 for size in sizes[:place]) or rest < 1:
        raise Refused("its elements do not lie one after another")
    row, count = prod(x.shape[first + 1 :]), op.sizes.size(known[first])
    total = count.times(row)
    if total.offset % rest or total.factor % rest:
        raise Refused("its input and its result may differ in their numbers of elements")
    amount = Amount(total.offset // rest, total.factor // rest, total.number)
    if wanted[place].known is None and wanted[place] != amount:
        raise Refused("its input and its result may differ in their numbers of elements")
    extent = x.size // rest
    size = known[first] if amount == count else op.number(amount, extent)
    return op.noted(reshape_node(op.emit, x, (*sizes[:place], extent, *sizes[place + 1 :])), {place: size})


@rule("RANGE")
def _range(op: Operation) -> Results | None:
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
        most = _bound(count)
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


def _steps(op: Operation, start: Amount, limit: Amount, step: int, most: int) -> Number:
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


def _bound(amount: Amount) -> int:
    if amount.high is None:
        raise Refused("nothing says how large its result can be")
    return max(0, amount.high)


def _sized_shape(op: Operation, amounts: Sequence[Amount]) -> tuple[list[int], dict[int, Number]]:
    """Return a shape of known sizes and bounds, and the open axes."""
    shape = [_bound(amount) if amount.known is None else amount.known for amount in amounts]
    if min(shape, default=1) < 1 or [*made_reasons(prod(shape))]:
        raise Refused(f"its result would have the shape {shape}")
    sizes = zip(amounts, shape, strict=True)
    return shape, {axis: op.number(a, most) for axis, (a, most) in enumerate(sizes) if a.known is None}


@rule("FILL")
def _fill(op: Operation) -> Results | None:
    if op.site.constant(0) is not None:
        return None
    shape, known = _sized_shape(op, op.amounts(0))
    if op.input(1).size != 1 or op.open(1):
        raise Refused("its value is not one number")
    if not known:
        raise Refused("its shape is computed")
    value = op.emit.node("map", [reshape_node(op.emit, op.input(1), ())], tuple(shape))
    return op.noted(op.computed(value, known), known)


@rule("ZEROS_LIKE")
def _zeros_like(op: Operation) -> Results | None:
    known = op.open(0)
    return op.noted(op.computed(op.declared()[0], known), known) if known else None


@rule("BROADCAST_TO")
def _broadcast_to(op: Operation) -> Results | None:
    x, own = op.input(0), op.open(0)
    if op.site.constant(1) is not None and not own:
        return None
    wanted = op.amounts(1)
    if len(wanted) < len(x.shape):
        raise Refused("its input does not broadcast to its shape")
    for at, size in enumerate(x.shape):
        axis = at + len(wanted) - len(x.shape)
        if at in own and wanted[axis] != op.sizes.size(own[at]):
            raise Refused("sizes that only a run can tell have to be equal")
        if at not in own and size != 1:
            if wanted[axis].known not in (None, size):
                raise Refused("its input does not broadcast to its shape")
            wanted[axis] = Amount(size)
    shape, known = _sized_shape(op, wanted)
    result = op.emit.node("map", [x], tuple(shape))
    return op.noted(op.computed(result, known) if known and not own else result, known)


@rule("TILE")
def _tile(op: Operation) -> Results | None:
    x, own = op.input(0), op.open(0)
    if op.site.constant(1) is not None and not own:
        return None
    multiples = op.amounts(1)
    if len(multiples) != len(x.shape):
        raise Refused("its multiples do not fit its input")
    if any(multiples[axis].known != 1 for axis in own):
        raise Refused("it repeats a size that only a run can tell")
    sizes = [multiple.times(size) for multiple, size in zip(multiples, x.shape, strict=True)]
    shape, known = _sized_shape(op, sizes)
    known |= own
    positions = [
        Position((Digit(axis, modulus=size if multiple.known != 1 else 0),))
        for axis, (size, multiple) in enumerate(zip(x.shape, multiples, strict=True))
    ]
    result = op.emit.node("gather", [x], tuple(shape), Gather(tuple(positions)))
    return op.noted(op.computed(result, known) if x.is_constant and known else result, known)


@rule("PAD", "PADV2")
def _pad(op: Operation) -> Results | None:
    x, own = op.input(0), op.open(0)
    given = op.site.constant(1)
    if given is not None and not own:
        return None
    margins = op.amounts(1)
    value = op.site.constant(2) if op.site.code == "PADV2" else np.zeros(1, x.dtype)
    if value is None or len(margins) != 2 * len(x.shape):
        raise Refused("its fill value is computed, or its paddings do not fit its input")
    fill = value.reshape(-1)[0].item() + 0
    befores = [amount.known for amount in margins[::2]]
    sizes = [op.sizes.size(own[axis]) if axis in own else Amount(extent) for axis, extent in enumerate(x.shape)]
    moved = [size.plus(before) for size, before in zip(sizes, margins[::2], strict=True)]
    totals = [end.plus(after) for end, after in zip(moved, margins[1::2], strict=True) if end is not None]
    maps = [AxisMap(axis, -before) for axis, before in enumerate(befores) if before is not None and before >= 0]
    found = [total for total in totals if total is not None]
    if len(maps) != len(x.shape) or len(found) != len(x.shape):
        raise Refused("how far its elements move is computed")
    shape, known = _sized_shape(op, found)
    ends: dict[int, Number] = {}
    for axis, end in enumerate(moved):
        if axis in own and found[axis] == sizes[axis]:
            known[axis] = own[axis]
        elif axis in own and end is not None:
            ends[axis] = op.number(end, x.shape[axis] - maps[axis].start)
    result = op.emit.node("rearrange", [x], tuple(shape), Rearrange(tuple(maps), fill))
    op.sizes.open[result.id] = ends
    result = op.sizes.masked(op.emit, result, ends, fill)
    return op.noted(result, known)


@rule("SEGMENT_SUM")
def _segment_sum(op: Operation) -> Results | None:
    """Give as many sums as there are slices at most."""
    if op.site.constant(1) is not None:
        return None
    x, emit = op.input(0), op.emit
    if not x.shape or op.input(1).shape != x.shape[:1] or set(op.open(0)) - {0} or x.dtype not in ("float32", "int32"):
        raise Refused("its segments do not fit its input")
    ids = op.sizes.masked(emit, op.input(1), op.open(1), -1)
    sums = segments(emit, x, ids, "add", x.shape[0])
    last = reshape_node(emit, reduce_node(emit, short(emit, ids), "max", (0,)), ())
    one, most = (emit.constant(np.array(n, np.int32)) for n in (1, x.shape[0]))
    steps = EpilogueOp("add", (Value(0), Input(1))), EpilogueOp("minimum", (Value(1), Input(2)))
    count = emit.node("map", [last, one, most], (), None, steps, "int32")
    return op.noted(sums, {0: Number(count.id, 0, count, 0, x.shape[0])})


@rule("SCATTER_ND")
def _scatter_nd(op: Operation) -> Results | None:
    """Rows that are not meant go nowhere."""
    known = op.open(0)
    if not known and not op.open(1):
        return None
    if set(known) != {0} or op.open(1) != known:
        raise Refused("its indices and updates are not equally many")
    indices, updates = (op.sizes.masked(op.emit, op.input(i), known, fill) for i, fill in ((0, -1), (1, 0)))
    return op.declared(_0=indices, _1=updates)


@rule("UNIQUE")
def _unique(op: Operation) -> Results | None:
    """Elements in order show which are the first of their kind; a run counts these where they stood."""
    x, emit, wide = op.input(0), op.emit, op.site.options.get("idx_out_type") == 4
    if len(x.shape) != 1 or x.size == 0 or x.dtype not in NUMBERS:
        raise Refused(f"its input is {x.dtype} of shape {list(x.shape)}")
    meant = (
        op.sizes.is_meant(emit, op.open(0)[0], x.shape, 0) if op.open(0) else emit.constant(np.ones(x.size, np.bool_))
    )
    x = op.sizes.masked(emit, x, op.open(0), 0)
    order = order_of(emit, x, ascends=True)

    def looked_up(table: Tensor, places: Tensor) -> Tensor:
        positions = Gather((Position((Lookup(1, (AxisMap(0),), x.size - 1),)),))
        return emit.node("gather", [table, places], x.shape, positions, precise=True)

    def at_places(values: Tensor) -> Tensor:  # from the order of elements to where they stood
        rows = reshape_node(emit, values, (x.size, 1))
        return reshape_node(emit, scattered(emit, rows, order, (x.size, 1), "assign"), x.shape)

    def counted(truth: Tensor) -> Tensor:  # how many are true before each
        sums = emit.node("cumulative_sum", [truth], x.shape, CumulativeSum(0, exclusive=False, reverse=False))
        one = emit.constant(np.array(1, np.int32))
        return emit.node("map", [sums, one], x.shape, None, (EpilogueOp("sub", (Value(0), Input(1))),))

    ordered = looked_up(x, order)
    before = emit.node("rearrange", [ordered], x.shape, Rearrange((AxisMap(0, -1),), 0), precise=True)
    start = emit.constant(np.arange(x.size) == 0)
    differs = EpilogueOp("not_equal", (Value(0), Input(1))), EpilogueOp("logical_or", (Value(1), Input(2)))
    leads = emit.node("map", [ordered, before, start], x.shape, None, differs, "int32")
    both = EpilogueOp("logical_and", (Value(0), Input(1)))
    first = emit.node("map", [at_places(leads), meant], x.shape, None, (both,), "int32")
    places, count = true_places(emit, first)
    leaders, _ = true_places(emit, leads)
    kinds = looked_up(counted(first), looked_up(order, looked_up(leaders, counted(leads))))
    indices = at_places(kinds)
    if wide:
        indices = emit.node("map", [indices], x.shape, None, (EpilogueOp("to_long", (Value(0),)),), "int64")
    values = op.noted(looked_up(x, places), {0: Number(count.id, 0, count, 0, x.size)})
    return [values, op.noted(indices, op.open(0))]


@rule("MEAN")
def _mean(op: Operation) -> Results | None:
    """Return the mean of a copy with zeros, whose divisor is corrected."""
    x, own = op.input(0), op.open(0)
    axes = op.site.constant(1)
    if not own or axes is None:
        return None
    over = [axis for axis in own if axis in {int(a) % len(x.shape) for a in axes.reshape(-1)}]
    if not over:
        return None
    if x.dtype != "float32":
        raise Refused("the mean of integers of a size that only a run can tell")
    (result,) = op.declared(_0=op.sizes.masked(op.emit, x, over, 0))
    for axis in over:
        most = op.emit.constant(np.array(x.shape[axis], np.float32))
        size = op.emit.node(
            "map", [own[axis].tensor], (), None, (EpilogueOp("to_float", (Value(0),)),), "float32", precise=True
        )
        steps = EpilogueOp("mul", (Value(0), Input(1))), EpilogueOp("div", (Value(1), Input(2)))
        result = op.emit.node("map", [result, most, size], result.shape, None, steps)
    return result


@rule("CONCATENATION")
def _concatenation(op: Operation) -> Results | None:
    """Return joined with what is not meant between the inputs, then without it."""
    inputs = [t for t in op.site.inputs if t is not None]
    axis = int(op.site.options.get("axis", 0)) % max(1, len(inputs[0].shape))
    opens = [op.sizes.of(t) for t in inputs]
    if not any(axis in known for known in opens):
        return None
    if any(set(known) - {axis} for known in opens):
        raise Refused("what it joins is open along another axis")
    emit = op.emit
    (joined,) = op.declared()
    op.noted(joined, {})
    masks = [
        op.sizes.is_meant(emit, known[axis], (t.shape[axis],), 0)
        if axis in known
        else emit.constant(np.ones(t.shape[axis], np.bool_))
        for t, known in zip(inputs, opens, strict=True)
    ]
    extent = joined.shape[axis]
    mask = emit.node("concatenate", masks, (extent,), Concatenate(0)) if len(masks) > 1 else masks[0]
    places, count = true_places(emit, mask)
    positions = [follow(i) for i in range(len(joined.shape))]
    positions[axis] = Position((Lookup(1, (AxisMap(axis),), extent - 1),))
    result = emit.node("gather", [joined, places], joined.shape, Gather(tuple(positions)))
    return op.noted(result, {axis: Number(count.id, 0, count, 0, extent)})


@rule("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def _suppression(op: Operation) -> Results | None:
    """Limit the number of boxes that are found by two others."""
    results = op.declared()
    count, most = results[-1], results[0].size
    if not count.is_constant:
        elements = np.empty((), object)
        elements[()] = amount_of(Number(count.id, 0, count, 0, most))
        op.sizes.elements[count.id] = elements
    return results
