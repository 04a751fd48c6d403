"""Rows of operators that join what goes to the same place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops import reference
from tests.ops.case import Net, Row, Tensor, largest
from tests.ops.strategies import BOOL, CHANNELS, SMALL
from tests.ops.tolerance import EXACT
from tflgpu.model.writer import ModelBuilder

TYPES = st.sampled_from(("float32", "int32", "int64"))


def _numbers(net: Net, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    return (net.normal(shape) if dtype == "float32" else net.rng.integers(-99, 99, shape)).astype(dtype)


def scatter_nd(net: Net) -> Tensor:
    """Some slices go to the same place, and many places get none."""
    shape = (*net.draw(st.lists(SMALL, min_size=1, max_size=3)), net.draw(CHANNELS))
    depth, leading = net.draw(st.integers(1, len(shape))), net.draw(st.lists(SMALL, min_size=1, max_size=2))
    places = net.rng.integers(0, shape[:depth], (*leading, depth)).astype(net.draw(st.sampled_from(("int32", "int64"))))
    indices = (net.constant if net.draw(BOOL) else net.input)(places)
    updates = net.input(_numbers(net, (*leading, *shape[depth:]), net.draw(TYPES)))
    value = np.zeros(shape, updates.value.dtype)
    np.add.at(value, tuple(np.moveaxis(places, -1, 0)), updates.value)
    dtype = "float32" if value.dtype.kind == "f" else value.dtype.name
    wanted = net.constant(np.array(shape, places.dtype))
    if places.dtype != np.int32:
        net.litert_differs = "it takes indices of 32 bits only"
    magnitude = largest(updates.value)
    return net.op("SCATTER_ND", [indices, updates, wanted], value, magnitude=magnitude, dtype=dtype)


JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "": lambda _, y: y,
    "STABLEHLO_ADD": np.add,
    "STABLEHLO_MULTIPLY": np.multiply,
    "STABLEHLO_MAXIMUM": np.maximum,
    "STABLEHLO_MINIMUM": np.minimum,
    "ADD": np.add,
}


def stablehlo_scatter(net: Net, codes: tuple[str, ...]) -> Tensor:
    """Any dimension numbers: windows at places along any axes, which overlap and leave the operand."""
    shape = (*net.draw(st.lists(SMALL, max_size=3)), net.draw(CHANNELS))
    axes, inserted, mapped, extents = range(len(shape)), list[int](), list[int](), list[int]()
    for axis, size in enumerate(shape):
        kind = net.draw(st.sampled_from(("inserted", "whole", "part", "window")))
        inserted += [axis] * (kind == "inserted")
        mapped += [axis] * (kind != "whole" and net.draw(BOOL))
        extents.append(0 if kind == "inserted" else size if kind == "whole" else int(net.rng.integers(1, size + 1)))
    mapped = [int(axis) for axis in net.rng.permutation(mapped or [axes[0]])]
    scatter = net.draw(st.lists(SMALL, max_size=2))
    vector = net.draw(st.integers(0, len(scatter)))
    places = [*scatter[:vector], len(mapped), *scatter[vector:]]
    if len(mapped) == 1 and net.draw(BOOL):
        places, vector = scatter, len(scatter)
    windows = sorted(
        map(int, net.rng.permutation(len(scatter) + len(shape) - len(inserted))[: len(shape) - len(inserted)])
    )
    sizes, rest = iter([e for axis, e in enumerate(extents) if axis not in inserted]), iter(scatter)
    updates = [next(sizes) if i in windows else next(rest) for i in range(len(scatter) + len(windows))]
    code, dtype = net.draw(st.sampled_from(codes)), net.draw(TYPES)
    return _stablehlo_scatter(net, shape, places, updates, windows, inserted, mapped, vector, code, dtype)


def _stablehlo_scatter(
    net: Net,
    shape: tuple[int, ...],
    places: list[int],
    updates: list[int],
    windows: list[int],
    inserted: list[int],
    mapped: list[int],
    vector: int,
    code: str,
    dtype: str,
) -> Tensor:
    indices = net.rng.integers(-2, max(shape[axis] for axis in mapped) + 1, places)
    given = (net.constant if net.draw(BOOL) else net.input)(
        indices.astype(net.draw(st.sampled_from(("int32", "int64"))))
    )
    x, y = (net.input(_numbers(net, tuple(sizes), dtype) % 7) for sizes in (shape, updates))
    body = ModelBuilder()
    result = [body.input((), dtype), body.input((), dtype)][1]
    if code:
        result = body.tensor((), dtype)
        body.op(code, [0, 1], [result])
    if code == "ADD" or dtype != "float32":
        net.litert_differs = "it knows StableHLO's operators alone, and wraps around in another way"
    options = {
        "update_window_dims": windows,
        "inserted_window_dims": inserted,
        "scatter_dims_to_operand_dims": mapped,
        "index_vector_dim": vector,
        "update_computation_subgraph_index": net.subgraph(body, [result]),
    }
    with np.errstate(over="ignore"):
        value = reference.stablehlo_scatter(x.value, given.value, y.value, options, JOINS[code])
    return net.op("STABLEHLO_SCATTER", [x, given, y], value, options, magnitude=50)


def many_places(net: Net) -> Tensor:
    """So many that they are put in order."""
    count = net.draw(st.sampled_from((700, 1900)))
    numbers = ([], [0, 1], [1, 0], 1) if net.draw(BOOL) else ([], [0, 1], [0, 1], 1)
    code = net.draw(st.sampled_from([*JOINS]))
    return _stablehlo_scatter(net, (50, 50), [count, 2], [count], *numbers, code, net.draw(TYPES))


def scatter_nd_of_a_whole_head(net: Net) -> Tensor:
    """Rows of one element at many places, as YOLOX writes the boxes of all cells."""
    shape, count = (1, 1700, 85), 3400
    places = np.stack([net.rng.integers(0, d, count) for d in shape], -1).astype(np.int32)
    updates, value = net.input(net.normal((count,))), np.zeros(shape)
    np.add.at(value, tuple(places.T), updates.value)
    indices = (net.constant if net.draw(BOOL) else net.input)(places)
    return net.op("SCATTER_ND", [indices, updates, net.integers(shape)], value, magnitude=largest(updates.value))


def segment_sum(net: Net) -> Tensor:
    count = net.draw(st.sampled_from((5, 1, 12)))
    shape, dtype = (count, *net.draw(st.lists(SMALL, max_size=2))), net.draw(st.sampled_from(("float32", "int32")))
    x = net.input(_numbers(net, shape, dtype))
    ids = np.cumsum(net.rng.integers(0, 2, count)).astype(np.int32)
    ids -= ids[0]
    value = np.zeros((ids[-1] + 1, *x.shape[1:]), x.value.dtype)
    np.add.at(value, ids, x.value)
    return net.op("SEGMENT_SUM", [x, net.constant(ids)], value, magnitude=largest(x.value))


IN_SEGMENTS: dict[str, tuple[Callable[..., Any], float | None, float | None]] = {
    "SUM": (np.add, 0, 0),
    "PROD": (np.multiply, 1, 1),
    "MAX": (np.maximum, np.finfo(np.float32).min, np.iinfo(np.int32).min),
    "MIN": (np.minimum, np.finfo(np.float32).max, np.iinfo(np.int32).max),
}


def unsorted_segments(net: Net, name: str) -> Tensor:
    """Segments in any order, some of which have no slices, and slices of no segment, whose number is negative."""
    join, *empty = IN_SEGMENTS[name]
    leading, rest = net.draw(st.lists(SMALL, min_size=1, max_size=2)), net.draw(st.lists(SMALL, max_size=2))
    dtype, count = net.draw(st.sampled_from(("float32", "int32"))), net.draw(SMALL)
    x = net.input(
        _numbers(net, (*leading, *rest), dtype) if name != "PROD" else net.factors((*leading, *rest)).astype(dtype)
    )
    ids = net.rng.integers(-1, count, leading).astype(np.int32)
    if dtype == "float32" and name in ("MAX", "MIN"):  # the float of an empty one leaves none for what comes after it
        count, ids = 1, np.zeros(leading, np.int32)
    value = np.full((count, *rest), empty[dtype == "int32"], x.value.dtype)
    for place in np.ndindex(*leading):
        if ids[place] >= 0:
            value[ids[place]] = join(value[ids[place]], x.value[place])
    given = (net.constant if net.draw(BOOL) else net.input)(ids)
    return net.op(f"UNSORTED_SEGMENT_{name}", [x, given, net.integers(count)], value, magnitude=largest(x.value))


ROWS = (
    Row("scatter_nd", "SCATTER_ND", scatter_nd),
    Row("scatter_nd_of_a_whole_head", "SCATTER_ND", scatter_nd_of_a_whole_head),
    Row("segment_sum", "SEGMENT_SUM", segment_sum),
    Row("stablehlo_scatter", "STABLEHLO_SCATTER", partial(stablehlo_scatter, codes=("",)), EXACT, litert=False),
    Row("stablehlo_scatter_joins", "STABLEHLO_SCATTER", partial(stablehlo_scatter, codes=tuple(JOINS)), litert=False),
    Row("stablehlo_scatter_many", "STABLEHLO_SCATTER", many_places),
    *(
        Row(f"unsorted_segment_{name.lower()}", f"UNSORTED_SEGMENT_{name}", partial(unsorted_segments, name=name))
        for name in IN_SEGMENTS
    ),
)
