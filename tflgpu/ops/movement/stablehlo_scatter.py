"""STABLEHLO_SCATTER: windows that join what is at their places in an operand.

Axes of the operand of which each window has all, at no index, are rows. All others are places: where an element of a
window goes is a number that the indices and its own coordinates give. What leaves the operand is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.graph.layout import Shape
from tflgpu.model.model import Subgraph
from tflgpu.ops.declaration import ANY, Emitter, Site, declare, judged
from tflgpu.ops.movement.scatter import Joining, scattered, short
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, reshape_node

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


def _joining(site: Site) -> Joining | None:
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
    if len(site.called) != 1 or _joining(site) is None:
        yield "its update computation is none of update, add, multiply, maximum and minimum"
    elif _joining(site) != "assign" and any((*site.input_grids, *site.output_grids)):
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
        judged(_joining(site)),
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
