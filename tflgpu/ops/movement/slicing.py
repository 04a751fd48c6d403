"""SLICE and STRIDED_SLICE. Starts can be computed at run time, but not how much is taken: memory is planned before.

The shape that the file declares is no help: where the bounds give another, LiteRT takes that, or refuses the run.

A start that is known only at run time is clamped so that the result lies inside the input. TFLite reports an error for
a start of SLICE out of range; a kernel cannot report one, and must not read outside of the tensor.
``Numerics(checks=True)`` finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.ops.checks import index_check
from tflgpu.ops.declaration import ANY, Check, Emitter, Site, declare, find_operator, numbers
from tflgpu.ops.movement.indexing import Digit, Gather, Lookup, Position, follow
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, reshape_node
from tflgpu.ops.sized import REST, Amount, Number, Refused, Results, SizedOperation


def _slice_shape(site: Site) -> list[int | None]:
    """Return the result's size along each axis; None where it is known only at run time."""
    begin, size = site.constant(1), site.constant(2)
    starts = [None] * len(site.input(0).shape) if begin is None else numbers(site, 1)
    wanted = [None] * len(starts) if size is None else numbers(site, 2)
    return [
        w if w != -1 else None if b is None else d - b
        for d, b, w in zip(site.input(0).shape, starts, wanted, strict=True)
    ]


def _slice_reasons(site: Site) -> Iterator[str]:
    shape, counts = site.input(0).shape, (site.input(1).size, site.input(2).size)
    if counts != (len(shape), len(shape)):
        yield f"its begin and size have {counts[0]} and {counts[1]} values for {len(shape)} axes"
        return
    begin = [0] * len(shape) if site.constant(1) is None else numbers(site, 1)
    sizes = _slice_shape(site)
    if None in sizes:
        yield "the shape of its result is computed at run time"
    elif any(b < 0 or s is None or s < 0 or b + s > d for b, s, d in zip(begin, sizes, shape, strict=True)):
        yield f"its range begins at {begin} with size {sizes} in an input of shape {list(shape)}"


def _slice_checks(site: Site, emit: Emitter) -> Iterator[Check]:
    rooms = (size - (taken or 0) for size, taken in zip(site.input(0).shape, _slice_shape(site), strict=True))
    return index_check(emit, site, 1, np.array([*rooms]))


@dataclass(frozen=True)
class _Taken:
    """A part of an axis: ``extent`` elements at most, from ``start`` on; of them ``size``, if that is open."""

    start: int | Amount
    extent: int
    size: Number | None = None


def _sized_slice(op: SizedOperation) -> Results | None:
    x, known = op.input(0), op.open(0)
    given = op.site.constant(2)
    if not known and given is not None and (op.site.constant(1) is not None or REST not in given.reshape(-1)):
        return None
    begins, wanted = op.amounts(1), op.amounts(2)
    if (len(begins), len(wanted)) != (len(x.shape), len(x.shape)):
        raise Refused("its begin and size do not fit its input")
    taken = [_sliced(op, *each) for each in zip(range(len(x.shape)), begins, wanted, strict=True)]
    return _cut(op, x, taken, op.input(1))


def _sliced(op: SizedOperation, axis: int, begin: Amount, wanted: Amount) -> _Taken:
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


def _wrapped(op: SizedOperation, amount: Amount, by: int, most: int, *, adds: bool) -> Number:
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


def _from(op: SizedOperation, size: Number, extent: int, start: int, stop: int | None = None) -> _Taken:
    """Return what is taken of an open axis from ``start`` up to ``stop``."""
    most = (extent if stop is None else min(stop, extent)) - start
    if start == 0 and most == extent:
        return _Taken(0, extent, size)
    return _up_to(op, start, op.sizes.size(size), most)


def _up_to(op: SizedOperation, start: int, end: Amount, most: int) -> _Taken:
    """Return what is taken of an axis from ``start`` up to an end that only a run can tell: ``most`` elements at
    most."""
    size = end.plus(Amount(start), -1)
    assert size is not None
    return _Taken(start, most, op.number(size, most))


def _cut(op: SizedOperation, x: Tensor, taken: Sequence[_Taken], begin: Tensor) -> Tensor:
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


@declare(
    "SLICE",
    versions=8,
    inputs=3,
    integers=(1, 2),
    types=ANY,
    by_parts=True,
    reasons=_slice_reasons,
    checks=_slice_checks,
    sized=_sized_slice,
)
def slice_(site: Site, emit: Emitter) -> Tensor:
    """Return a block of the input, whose begin may be computed."""
    x, begin = site.input(0), site.input(1)
    shape = tuple(s for s in _slice_shape(site) if s is not None)
    if begin.is_constant:
        axes = tuple(AxisMap(i, start) for i, start in enumerate(numbers(site, 1)))
        return emit.node("rearrange", [x], shape, Rearrange(axes))
    positions = (
        Position((Digit(i), Lookup(1, (AxisMap(None, i),), size - taken))) if taken < size else follow(i)
        for i, (size, taken) in enumerate(zip(x.shape, shape, strict=True))
    )
    return emit.node("gather", [x, begin], shape, Gather(tuple(positions)))


@dataclass(frozen=True)
class SlicedAxis:
    """One input axis of a strided slice.

    size: of the input along the axis. entry: its index in begin, end and strides; None if the whole axis is taken.
    axis: the axis of the result; None if one element is taken and the axis is dropped.
    """

    size: int
    entry: int | None
    axis: int | None


@dataclass(frozen=True)
class _Range:
    """``extent`` coordinates, ``step`` apart, from ``start`` on; None for a start that is known only at run time."""

    start: int | None
    step: int
    extent: int


def has_mask(site: Site, name: str, entry: int) -> bool:
    """Whether a mask of a STRIDED_SLICE has the bit of an entry.

    Args:
        site: The operator.
        name: ``begin``, ``end`` and the like.
        entry: The entry's number.
    """
    return bool(site.options.get(f"{name}_mask", 0) >> entry & 1)


def sliced_axes(site: Site) -> tuple[list[SlicedAxis], int]:
    """Return the masks of TensorFlow's strided slice (tensorflow.org/api_docs/python/tf/strided_slice) expanded.

    Returns the axes of the input, and the rank of the result, which counts new axes too.
    """
    if _ellipses(site) > 1:
        return _axes_around_ellipses(site)
    shape, entries = site.input(0).shape, range(site.input(1).size)
    indexed = sum(not has_mask(site, "ellipsis", i) and not has_mask(site, "new_axis", i) for i in entries)
    axes: list[SlicedAxis] = []
    rank = 0
    for i in entries:
        if has_mask(site, "ellipsis", i):
            for _ in range(len(shape) - indexed):
                axes.append(SlicedAxis(shape[len(axes)], None, rank))
                rank += 1
        elif has_mask(site, "new_axis", i):
            rank += 1
        elif has_mask(site, "shrink_axis", i):
            axes.append(SlicedAxis(shape[len(axes)], i, None))
        else:
            axes.append(SlicedAxis(shape[len(axes)], i, rank))
            rank += 1
    for size in shape[len(axes) :]:
        axes.append(SlicedAxis(size, None, rank))
        rank += 1
    return axes, rank


def _ellipses(site: Site) -> int:
    return sum(has_mask(site, "ellipsis", i) for i in range(site.input(1).size))


def _axes_around_ellipses(site: Site) -> tuple[list[SlicedAxis], int]:
    """:func:`_axes` with several ellipses, which TensorFlow does not know, and no new axes.

    TFLite asks for an ellipsis by the number of an axis, not by that of an entry, and lets each stand for at least one
    axis, and for all that have no entry (BuildStridedSliceParams in its strided_slice.cc).
    """
    shape, entries = site.input(0).shape, site.input(1).size
    whole, last, extra, i = set[int](), 0, 0, 0
    while i < len(shape):
        after = i + 1
        if i < entries and has_mask(site, "ellipsis", i):
            after = max(after, min(after + len(shape) - entries, len(shape)))
            last, extra = i, after - i - 1
            whole.update(range(i, after))
        i = after
    axes: list[SlicedAxis] = []
    rank = 0
    for i, size in enumerate(shape):
        entry = None if i in whole or i >= entries + extra else i - (extra if i > last else 0)
        dropped = entry is not None and has_mask(site, "shrink_axis", entry)
        axes.append(SlicedAxis(size, entry, None if dropped else rank))
        rank += not dropped
    return axes, rank


def _range(site: Site, of: SlicedAxis) -> _Range | None:
    """Return the range that is taken of an input axis; None if its extent is known only at run time."""
    if of.entry is None:
        return _Range(0, 1, of.size)
    begin, end, strides = (None if site.constant(i) is None else numbers(site, i)[of.entry] for i in (1, 2, 3))
    from_edge, to_edge = has_mask(site, "begin", of.entry), has_mask(site, "end", of.entry)
    if of.axis is None and from_edge:  # TFLite's way; TensorFlow ignores the mask here
        return _Range(0, 1, 1)
    if of.axis is None:
        return _Range(None if begin is None else min(slice(begin, None).indices(of.size)[0], of.size - 1), 1, 1)
    if strides is None:
        return None
    start = slice(None if from_edge else begin, None, strides).indices(of.size)[0]
    if end is not None and not to_edge and site.options.get("offset"):
        if begin is None and not from_edge:  # it lies inside of the input
            extent = len(range(0, end, strides))
            return _Range(None, strides if extent > 1 else 1, extent)
        end += start
    if (begin is None and not from_edge) or (end is None and not to_edge):
        return None
    stop = slice(None, None if to_edge else end, strides).indices(of.size)[1]
    extent = len(range(start, stop, strides))
    return _Range(start, strides if extent > 1 else 1, extent)  # a stride that leads nowhere may be too large to count


def _strided_reasons(site: Site) -> Iterator[str]:
    counts = [site.input(i).size for i in (1, 2, 3)]
    entries = range(counts[0])
    ellipses = _ellipses(site)
    new = sum(has_mask(site, "new_axis", i) and not has_mask(site, "ellipsis", i) for i in entries)
    shape, strides = site.input(0).shape, site.constant(3)
    if len(set(counts)) != 1:
        yield "its begin, end and strides have different lengths"
    elif strides is not None and 0 in strides:
        yield "its strides contain 0"
    elif any(site.options.get(f"{name}_mask", 0) >> counts[0] for name in ("new_axis", "ellipsis")):
        yield f"a mask of its new axes or its ellipsis names more than its {counts[0]} entries"
    elif ellipses > 1 and new:
        yield "its ellipsis mask has more than one bit, and there are new axes"
    elif counts[0] - ellipses - new > len(shape):
        yield f"it indexes more axes than its input {list(shape)} has"
    else:
        yield from _range_reasons(site)


def _fits(taken: _Range, size: int) -> bool:
    reach = (taken.extent - 1) * taken.step
    return abs(reach) < size if taken.start is None else 0 <= taken.start + reach < size


def _range_reasons(site: Site) -> Iterator[str]:
    axes, _ = sliced_axes(site)
    for number, axis in enumerate(axes):
        taken = _range(site, axis)
        if taken is None and site.constant(3) is None:
            yield f"its stride along axis {number} is computed at run time; only a constant is supported"
        elif taken is None:
            yield f"how much it takes of axis {number} is computed at run time"
        elif taken.extent and not _fits(taken, axis.size):
            start = "any place" if taken.start is None else taken.start
            yield f"axis {number} of size {axis.size} has no {taken.extent} elements {taken.step} apart from {start} on"


def _sized_strided_slice(op: SizedOperation) -> Results | None:
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


def _between(
    op: SizedOperation, extent: int, size: Number | None, begin: Amount, end: Amount | None, one: bool
) -> _Taken:
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


@declare(
    "STRIDED_SLICE",
    versions=8,
    inputs=4,
    integers=(1, 2, 3),
    types=ANY,
    by_parts=True,
    reasons=_strided_reasons,
    sized=_sized_strided_slice,
)
def strided_slice(site: Site, emit: Emitter) -> Tensor:
    """Every n-th element of the input between two places of each axis."""
    axes, rank = sliced_axes(site)
    if not axes:  # a scalar, perhaps with new axes
        return emit.node("reshape", [site.input(0)], (1,) * rank)
    pairs = [(axis, taken) for axis in axes if (taken := _range(site, axis))]
    size = {axis.axis: taken.extent for axis, taken in pairs}
    shape = tuple(size.get(i, 1) for i in range(rank))
    if all(taken.start is not None for _, taken in pairs):
        maps = (AxisMap(axis.axis, taken.start or 0, taken.step) for axis, taken in pairs)
        return emit.node("rearrange", [site.input(0)], shape, Rearrange(tuple(maps)))
    starts = _starts(emit, site.input(1), pairs)
    positions = tuple(_position(axis, taken) for axis, taken in pairs)
    return emit.node("gather", [site.input(0), starts], shape, Gather(positions))


def _position(of: SlicedAxis, taken: _Range) -> Position:
    terms = () if of.axis is None else (Digit(of.axis, step=taken.step),)
    if taken.start is not None:
        return Position(terms, taken.start)
    assert of.entry is not None
    return Position((*terms, Lookup(1, (AxisMap(None, of.entry),), None)))


def _starts(emit: Emitter, begin: Tensor, pairs: list[tuple[SlicedAxis, _Range]]) -> Tensor:
    """``begin`` with negative numbers counted from the end of their axis, then clamped so that the ranges fit."""
    size, least, greatest = (np.zeros(begin.size, np.int32) for _ in range(3))
    for axis, taken in pairs:
        if axis.entry is not None:
            reach = (taken.extent - 1) * taken.step
            size[axis.entry] = axis.size
            least[axis.entry], greatest[axis.entry] = max(0, -reach), axis.size - 1 - max(0, reach)
    inputs = [begin, *map(emit.constant, (np.zeros(1, np.int32), size, least, greatest))]
    narrow = (EpilogueOp("to_index", (Value(0),)),) if begin.dtype == "int64" else ()
    n = len(narrow)
    epilogue = (
        *narrow,
        EpilogueOp("less", (Value(n), Input(1))),
        EpilogueOp("mul", (Value(n + 1), Input(2))),
        EpilogueOp("add", (Value(n), Value(n + 2))),
        EpilogueOp("maximum", (Value(n + 3), Input(3))),
        EpilogueOp("minimum", (Value(n + 4), Input(4))),
    )
    return emit.node("map", inputs, begin.shape, None, epilogue, dtype="int32")
