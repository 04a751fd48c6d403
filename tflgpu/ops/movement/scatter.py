"""SCATTER_ND and SEGMENT_SUM: sums of the rows that go to the same place."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.graph.layout import LANES, Shape
from tflgpu.ops.arithmetic.reduction import reduce_node
from tflgpu.ops.checks import index_check
from tflgpu.ops.declaration import Check, Emitter, Site, declare, numbers, static
from tflgpu.ops.movement.shaping import reshape_node

TYPES = frozenset(("float32", "int32", "int64"))

# Each vec4 of the result looks at all places. With more of them than this, that takes longer than to cross to the CPU.
MOST_LOOKS = 1 << 26


def _scattered(emit: Emitter, rows: Tensor, places: Tensor, shape: Shape) -> Tensor:
    """Rows [n, size] at places [n]: a tensor of ``shape`` [rows, size] with the sum of those of each place."""
    return emit.node("scatter", [rows, places], shape, dtype=rows.dtype)


def _work_reasons(count: int, places: int, size: int) -> Iterator[str]:
    looks = count * places * -(-size // LANES)
    if looks > MOST_LOOKS:
        yield f"it brings {count} rows of {size} elements to {places} places, which takes {looks} comparisons"


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
    yield from _work_reasons(prod(indices[:-1]), prod(shape[:depth]), prod(shape[depth:]))


def _scatter_checks(site: Site, emit: Emitter) -> Iterator[Check]:
    return index_check(emit, site, 0, np.array(numbers(site, 2)[: site.input(0).shape[-1]]) - 1)


@declare(
    "SCATTER_ND",
    versions=1,
    inputs=3,
    integers=(0, 2),
    types=TYPES,
    empty=False,
    reasons=_scatter_reasons,
    checks=_scatter_checks,
)
def scatter_nd(site: Site, emit: Emitter) -> Tensor:
    """Slices at their places among zeros; those of the same place add up."""
    indices, updates, shape = site.input(0), site.input(1), tuple(numbers(site, 2))
    *leading, depth = indices.shape
    count, size = prod(leading), prod(shape[depth:])
    if indices.dtype != "int32":
        short = EpilogueOp("to_index", (Value(0),))
        indices = emit.node("map", [indices], indices.shape, None, (short,), "int32")
    places = reshape_node(emit, indices, (count, depth))
    if depth > 1:
        strides = emit.constant(np.array([prod(shape[i + 1 : depth]) for i in range(depth)], np.int32))
        scaled = EpilogueOp("mul", (Value(0), Input(1)))
        places = reduce_node(emit, emit.node("map", [places, strides], places.shape, None, (scaled,)), "sum", (1,))
    rows = reshape_node(emit, updates, (count, size))
    result = _scattered(emit, rows, reshape_node(emit, places, (count,)), (prod(shape[:depth]), size))
    return reshape_node(emit, result, shape)


def _segment_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "segments")
    ids, shape = site.constant(1), site.input(0).shape
    if ids is None:
        return
    if not shape or ids.shape != shape[:1]:
        yield f"its segments {list(ids.shape)} do not fit its input {list(shape)}"
    elif ids[0] != 0 or np.any((np.diff(ids) != 0) & (np.diff(ids) != 1)):
        yield "its segments do not begin with 0 and go on one by one"
    else:
        yield from _work_reasons(shape[0], int(ids[-1]) + 1, prod(shape[1:]))


@declare(
    "SEGMENT_SUM",
    versions=1,
    inputs=2,
    integers=(1,),
    types=frozenset(("float32", "int32")),
    empty=False,
    reasons=_segment_reasons,
)
def segment_sum(site: Site, emit: Emitter) -> Tensor:
    """Sums of the rows of each segment."""
    x, ids = site.input(0), site.known(1)
    rows = reshape_node(emit, x, (x.shape[0], prod(x.shape[1:])))
    places = emit.constant(ids.astype(np.int32))
    result = _scattered(emit, rows, places, (int(ids[-1]) + 1, rows.shape[1]))
    return reshape_node(emit, result, (result.shape[0], *x.shape[1:]))
