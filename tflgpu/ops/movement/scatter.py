"""SCATTER_ND, SEGMENT_SUM, UNSORTED_SEGMENT_* and STABLEHLO_SCATTER: rows that join those at their place.

Rows join in their order. So results are the same in each run, and of several rows that take a place the last one stays.

Axes of STABLEHLO_SCATTER's operand of which each window has all, at no index, are rows. All others are places: where an
element of a window goes is a number that the indices and its own coordinates give. What leaves the operand is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.graph.layout import LANES, Shape
from tflgpu.model.model import Subgraph
from tflgpu.ops.arithmetic.reduction import OF_NOTHING, reduce_node
from tflgpu.ops.arithmetic.scan import TopK
from tflgpu.ops.checks import index_check
from tflgpu.ops.declaration import ANY, FLOATS, NUMBERS, Check, Emitter, Site, declare, judged, numbers, static
from tflgpu.ops.limits import made_reasons
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, reshape_node
from tflgpu.ops.sized import Number, Refused, Results, SizedOperation

Joining = Literal["assign", "add", "mul", "maximum", "minimum"]

# Each vec4 of the result looks at all places, unless they are in order. With more looks than this, sorting takes less
# time. On CPUs a kernel of sums alone (movement/scatter_columns) looks at each place once for a column.
MOST_LOOKS, MOST_LOOKS_FOR_SUMS = 1 << 20, 1 << 26


@dataclass(frozen=True)
class Scatter:
    """Rows (input 0) join what is at their places (input 1), a row of the result each. Places outside of it get none.

    in_order: whether the places ascend; input 2 then says which row belongs to each. background: the input that is at
    the places at first; None for ``initial`` at each place.
    """

    joining: Joining
    in_order: bool
    background: int | None = None
    initial: float | int = 0


def ascending(emit: Emitter, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return places in order, and where each was; equal ones keep their order.

    Args:
        emit: Gets the nodes.
        places: Elements of int32, none below -1.
    """
    negative = (EpilogueOp("neg", (Value(0),)),)
    keys = emit.node("map", [places], places.shape, None, negative)
    ordered = emit.node("top_k", [keys], places.shape, TopK("values"), negative)
    return ordered, emit.node("top_k", [keys], places.shape, TopK("indices"))


def scattered(
    emit: Emitter,
    rows: Tensor,
    places: Tensor,
    shape: Shape,
    joining: Joining = "add",
    *,
    known: bool = False,
    background: Tensor | None = None,
    initial: float | int = 0,
) -> Tensor:
    """Return rows at places of a tensor.

    Args:
        emit: Gets the nodes.
        rows: A tensor [n, size].
        places: A tensor [n] of row numbers; those out of range are left out.
        shape: The result's, [count, size].
        joining: What becomes of rows at the same place.
        known: Whether the places are constants, or follow from constants: then nothing is sorted when the model runs.
        background: The rows without any at their place; None for ``initial``.
        initial: The elements without a background.
    """
    sums_alone = joining == "add" and background is None
    looks = places.size * shape[0] * -(-shape[1] // LANES)
    inputs = [rows, places]
    in_order = known or looks > (MOST_LOOKS_FOR_SUMS if sums_alone else MOST_LOOKS)
    if in_order:
        inputs = [rows, *ascending(emit, places)]
    attributes = Scatter(joining, in_order, None if background is None else len(inputs), initial)
    return emit.node("scatter", inputs if background is None else [*inputs, background], shape, attributes)


def _scatter_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 2, "shape")
    if site.constant(2) is None:
        return
    indices, updates, shape = site.input(0).shape, site.input(1).shape, tuple(numbers(site, 2))
    depth = indices[-1] if indices else 0
    if not 0 < depth <= len(shape) or updates != (*indices[:-1], *shape[depth:]) or min(shape, default=0) < 1:
        yield f"its indices {list(indices)} and updates {list(updates)} do not fit the shape {list(shape)}"
        return
    known = np.array(numbers(site, 0)).reshape(-1, depth) if site.constant(0) is not None else np.zeros((1, depth), int)
    if np.any((known < 0) | (known >= np.array(shape[:depth]))):
        yield f"its indices are from {known.min()} to {known.max()} for the shape {list(shape)}"


def _scatter_checks(site: Site, emit: Emitter) -> Iterator[Check]:
    return index_check(emit, site, 0, np.array(numbers(site, 2)[: site.input(0).shape[-1]]) - 1)


def short(emit: Emitter, indices: Tensor) -> Tensor:
    """Return indices of 32 bits; those which these cannot hold stay out of range.

    Args:
        emit: Gets the node.
        indices: Of 32 or 64 bits.
    """
    if indices.dtype == "int32":
        return indices
    return emit.node("map", [indices], indices.shape, None, (EpilogueOp("to_index", (Value(0),)),), "int32")


def _sized_scatter(op: SizedOperation) -> Results | None:
    """Rows that are not meant go nowhere."""
    known = op.open(0)
    if not known and not op.open(1):
        return None
    if set(known) != {0} or op.open(1) != known:
        raise Refused("its indices and updates are not equally many")
    indices, updates = (op.sizes.masked(op.emit, op.input(i), known, fill) for i, fill in ((0, -1), (1, 0)))
    return op.declared(_0=indices, _1=updates)


@declare(
    "SCATTER_ND",
    versions=1,
    inputs=3,
    integers=(0, 2),
    types=NUMBERS,
    empty=False,
    reasons=_scatter_reasons,
    checks=_scatter_checks,
    sized=_sized_scatter,
)
def scatter_nd(site: Site, emit: Emitter) -> Tensor:
    """Slices at their places among zeros; those of the same place add up."""
    indices, updates, shape = short(emit, site.input(0)), site.input(1), tuple(numbers(site, 2))
    *leading, depth = indices.shape
    count, size = prod(leading), prod(shape[depth:])
    places = reshape_node(emit, indices, (count, depth))
    if depth > 1:
        strides = emit.constant(np.array([prod(shape[i + 1 : depth]) for i in range(depth)], np.int32))
        scaled = EpilogueOp("mul", (Value(0), Input(1)))
        places = reduce_node(emit, emit.node("map", [places, strides], places.shape, None, (scaled,)), "sum", (1,))
    rows, places = reshape_node(emit, updates, (count, size)), reshape_node(emit, places, (count,))
    known = site.constant(0) is not None
    return reshape_node(emit, scattered(emit, rows, places, (prod(shape[:depth]), size), known=known), shape)


def _segment_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "segments")
    ids, shape = site.constant(1), site.input(0).shape
    if ids is None:
        return
    if not shape or ids.shape != shape[:1]:
        yield f"its segments {list(ids.shape)} do not fit its input {list(shape)}"
    elif ids[0] != 0 or np.any((np.diff(ids) != 0) & (np.diff(ids) != 1)):
        yield "its segments do not begin with 0 and go on one by one"


def _sized_segment_sum(op: SizedOperation) -> Results | None:
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


@declare(
    "SEGMENT_SUM",
    versions=1,
    inputs=2,
    integers=(1,),
    types=FLOATS | {"int32"},
    empty=False,
    reasons=_segment_reasons,
    sized=_sized_segment_sum,
)
def segment_sum(site: Site, emit: Emitter) -> Tensor:
    """Sum the rows of each segment."""
    return segments(emit, site.input(0), site.input(1), "add", int(site.known(1)[-1]) + 1, known=True)


def segments(
    emit: Emitter, x: Tensor, ids: Tensor, joining: Joining, count: int, *, known: bool = False, initial: float = 0
) -> Tensor:
    """Return the joined slices of each segment: [count, ...].

    Args:
        emit: Gets the nodes.
        x: The slices, along the axes of ``ids``.
        ids: Numbers of segments.
        joining: What becomes of slices of one segment.
        count: The number of segments.
        known: Whether the numbers are constants, or follow from constants.
        initial: The elements of a segment without slices.
    """
    ids = short(emit, ids)
    rows = reshape_node(emit, x, (ids.size, prod(x.shape[len(ids.shape) :])))
    none, most = (emit.constant(np.array(n, np.int32)) for n in (-1, count))
    kept = EpilogueOp("maximum", (Value(0), Input(1))), EpilogueOp("minimum", (Value(1), Input(2)))
    places = reshape_node(emit, emit.node("map", [ids, none, most], ids.shape, None, kept), (ids.size,))
    result = scattered(emit, rows, places, (count, rows.shape[1]), joining, known=known, initial=initial)
    return reshape_node(emit, result, (count, *x.shape[len(ids.shape) :]))


def _unsorted_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 2, "number of segments")
    ids, shape = site.input(1).shape, site.input(0).shape
    if ids != shape[: len(ids)] or not ids:
        yield f"its segments {list(ids)} do not fit its input {list(shape)}"
    count = site.constant(2)
    if count is not None and (count.size != 1 or count.min() < 1):
        yield f"its number of segments is {count.tolist()}; one number from 1 on was expected"
    elif count is not None:
        yield from made_reasons(int(count.reshape(-1)[0]) * prod(shape[len(ids) :]))


def _unsorted(site: Site, emit: Emitter, joining: Joining, empty: str) -> Tensor:
    initial = OF_NOTHING[empty](np.dtype(site.input(0).dtype))
    known, count = site.constant(1) is not None, numbers(site, 2)[0]
    given = site.input(0), site.input(1)
    return segments(emit, *given, joining, count, known=known, initial=np.asarray(initial).item())


_UNSORTED: dict[str, Joining] = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}

for _name, _joining in _UNSORTED.items():
    declare(
        f"UNSORTED_SEGMENT_{_name.upper()}",
        versions=1,
        inputs=3,
        integers=(1, 2),
        types=FLOATS | {"int32"},
        empty=False,
        reasons=_unsorted_reasons,
    )(partial(_unsorted, joining=_joining, empty=_name))

# The operators of which an update computation may consist.
JOINING: dict[str, Joining] = {
    "ADD": "add",
    "STABLEHLO_ADD": "add",
    "MUL": "mul",
    "STABLEHLO_MULTIPLY": "mul",
    "MAXIMUM": "maximum",
    "STABLEHLO_MAXIMUM": "maximum",
    "MINIMUM": "minimum",
    "STABLEHLO_MINIMUM": "minimum",
}

# The same for booleans.
LOGICAL: dict[str, Joining] = {
    "LOGICAL_OR": "maximum",
    "STABLEHLO_OR": "maximum",
    "LOGICAL_AND": "minimum",
    "STABLEHLO_AND": "minimum",
}


def _update_joining(site: Site) -> Joining | None:
    """Return what the update computation does; None if it is no single operator of those."""
    body: Subgraph = site.called[0]
    if len(body.inputs) != 2 or len(body.outputs) != 1:
        return None
    if not body.operators:
        return "assign" if body.outputs[0] == body.inputs[1] else None
    operator = body.operators[0]
    joined = sorted(operator.inputs) == sorted(body.inputs) and operator.outputs == body.outputs
    if len(body.operators) > 1 or not joined or operator.options.get("fused_activation_function", 0):
        return None
    return (LOGICAL if site.input(0).dtype == "bool" else JOINING).get(operator.code)


@dataclass(frozen=True)
class _Axis:
    """An axis of the operand.

    window: the axis of the updates along which windows have some of it; None if they have one element of it. column: of
    the indices, which say where it begins; None for 0.
    """

    size: int
    extent: int
    window: int | None
    column: int | None

    @property
    def is_row(self) -> bool:
        """Whether each window has all of it."""
        return self.column is None and self.window is not None and self.extent == self.size


def _axes(site: Site) -> list[_Axis] | None:
    """Return the axes of the operand; None if the dimension numbers do not fit the inputs."""
    shape, indices, updates = (site.input(i).shape for i in range(3))
    windows, inserted, mapped = (
        tuple(site.options.get(name, ()))
        for name in ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    )
    vector = site.options.get("index_vector_dim", 0)
    if not 0 <= vector <= len(indices):
        return None
    depth = indices[vector] if vector < len(indices) else 1
    fit = (
        _ascends(windows, len(updates)),
        _ascends(inserted, len(shape)),
        len(windows) + len(inserted) == len(shape),
        len(mapped) == len(set(mapped)) == depth and all(0 <= axis < len(shape) for axis in mapped),
        indices[:vector] + indices[vector + 1 :] == tuple(d for i, d in enumerate(updates) if i not in windows),
    )
    if not all(fit):
        return None
    given = iter(windows)
    window = {axis: next(given) for axis in range(len(shape)) if axis not in inserted}
    axes = []
    for axis, size in enumerate(shape):
        extent = updates[window[axis]] if axis in window else 1
        column = mapped.index(axis) if axis in mapped else None
        axes.append(_Axis(size, extent, window.get(axis), column))
    return axes if all(axis.extent <= axis.size for axis in axes) else None


def _ascends(numbers: Sequence[int], end: int) -> bool:
    return list(numbers) == sorted({n for n in numbers if 0 <= n < end})


def _reasons(site: Site) -> Iterator[str]:
    x, updates = site.input(0), site.input(2)
    if x.dtype != updates.dtype:
        yield f"its updates have element type {updates.dtype}; its operand has {x.dtype}"
    if len(site.called) != 1 or _update_joining(site) is None:
        yield "its update computation is none of update, add, multiply, maximum and minimum"
    elif _update_joining(site) != "assign" and any((*site.input_grids, *site.output_grids)):
        yield "its update computation joins quantized numbers"
    if _axes(site) is None:
        shapes = ", ".join(str(list(site.input(i).shape)) for i in range(3))
        yield f"its dimension numbers do not fit its operand, indices and updates of shapes {shapes}"


@declare("STABLEHLO_SCATTER", versions=1, inputs=3, integers=(1,), types=ANY, reasons=_reasons)
def stablehlo_scatter(site: Site, emit: Emitter) -> Tensor:
    """Windows at their places in a copy of the operand; those that overlap join in their order."""
    x, updates, axes = site.input(0), site.input(2), judged(_axes(site))
    if 0 in (x.size, updates.size):
        return emit.node("map", [x], x.shape)
    rows = [i for i, axis in enumerate(axes) if axis.is_row]
    placed = [i for i, axis in enumerate(axes) if not axis.is_row]
    row_windows = [judged(axes[i].window) for i in rows]
    units = [i for i in range(len(updates.shape)) if i not in row_windows]
    strides = {axis: prod(x.shape[i] for i in placed if i > axis) for axis in placed}
    known = site.constant(1) is not None
    places = _places(site, emit, {axis: axes[axis] for axis in placed}, strides, units)
    size = prod(x.shape[i] for i in rows)
    moved = _moved(emit, updates, [*units, *row_windows])
    background = _moved(emit, x, [*placed, *rows])
    result = scattered(
        emit,
        reshape_node(emit, moved, (places.size, size)),
        places,
        (background.size // size, size),
        judged(_update_joining(site)),
        known=known,
        background=reshape_node(emit, background, (background.size // size, size)),
    )
    order = [*placed, *rows]
    return _moved(emit, reshape_node(emit, result, background.shape), [order.index(i) for i in range(len(order))])


def _moved(emit: Emitter, x: Tensor, order: list[int]) -> Tensor:
    """``x`` with its axes in another order."""
    if order == sorted(order):
        return x
    maps = tuple(AxisMap(order.index(i)) for i in range(len(order)))
    return emit.node("rearrange", [x], tuple(x.shape[i] for i in order), Rearrange(maps))


def _places(site: Site, emit: Emitter, axes: dict[int, _Axis], strides: dict[int, int], units: list[int]) -> Tensor:
    """Where each unit of the updates goes, a list; -1 for those that leave the operand.

    axes, strides: those of the operand by which places are counted, by number. units: the axes of the updates that
    places follow.
    """
    updates, indices = site.input(2).shape, site.input(1)
    shape = tuple(updates[i] for i in units)
    windows = [axis.window for axis in axes.values()]
    spread = tuple(1 if i in windows else updates[i] for i in units)
    columns = _columns(emit, indices, site.options.get("index_vector_dim", 0), spread)
    inputs, steps = list[Tensor](), list[EpilogueOp]()
    still: NDArray[np.int32] = np.zeros(shape, np.int32)
    place: Value | None = None
    inside: Value | None = None

    def value(function: str, *operands: Value | Input, parameters: tuple[float, ...] = ()) -> Value:
        steps.append(EpilogueOp(function, operands, parameters))
        return Value(len(steps))

    def read(x: Tensor) -> Value | Input:
        inputs.append(x)
        return Input(len(inputs) - 1) if len(inputs) > 1 else Value(0)

    for number, axis in axes.items():
        own = _coordinates(axis, units, shape)
        if axis.column is None:
            still = still + np.int32(strides[number]) * own
            continue
        # Nothing of a window is inside when it begins so far outside: sums stay within 32 bits.
        start = value("clamp", read(columns[axis.column]), parameters=(-axis.extent, axis.size))
        at = value("add", start, read(emit.constant(own))) if axis.extent > 1 else start
        stays = value("equal", value("clamp", at, parameters=(0, axis.size - 1)), at)
        step = value("mul", at, read(emit.constant(np.array(strides[number], np.int32))))
        place = step if place is None else value("add", place, step)
        inside = stays if inside is None else value("logical_and", inside, stays)
    if place is None or inside is None:
        return emit.constant(still.reshape(-1))
    if still.any():
        place = value("add", place, read(emit.constant(still)))
    value("select", inside, place, read(emit.constant(np.array(-1, np.int32))))
    result = emit.node("map", inputs, shape, None, tuple(steps), "int32")
    return reshape_node(emit, result, (result.size,))


def _coordinates(axis: _Axis, units: list[int], shape: Shape) -> NDArray[np.int32]:
    """Return the coordinate of each unit in its window along an axis of the operand."""
    if axis.window is None:
        return np.zeros(shape, np.int32)
    sizes = [-1 if i == axis.window else 1 for i in units]
    return np.broadcast_to(np.arange(axis.extent, dtype=np.int32).reshape(sizes), shape).copy()


def _columns(emit: Emitter, indices: Tensor, vector: int, shape: Shape) -> list[Tensor]:
    """Return the components of the indices, int32, each of ``shape``."""
    indices = short(emit, indices)
    if vector == len(indices.shape):
        return [reshape_node(emit, indices, shape)]
    taken = (*indices.shape[:vector], *indices.shape[vector + 1 :])
    found = []
    for i in range(indices.shape[vector]):
        maps = [AxisMap(axis - (axis > vector)) for axis in range(len(indices.shape))]
        maps[vector] = AxisMap(None, i)
        column = (
            indices if indices.shape[vector] == 1 else emit.node("rearrange", [indices], taken, Rearrange((*maps,)))
        )
        found.append(reshape_node(emit, column, shape))
    return found
