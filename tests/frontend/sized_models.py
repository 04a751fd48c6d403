"""Models that run whole on the device though only a run can tell sizes of their tensors."""

from __future__ import annotations

import numpy as np

from tests.frontend.dynamic_models import (
    ANY,
    ELEMENTS,
    Array,
    Draw,
    DynamicBuilder,
    boolean_mask,
    mask_and_more,
    one_list,
    suppression,
)

ROWS, COLUMNS = 5, 6


def _matrix(rng: np.random.Generator) -> list[Array]:
    """Of which sometimes no number is positive, and sometimes all are."""
    return [(rng.standard_normal((ROWS, COLUMNS)) + rng.choice((-9, 0, 0, 9))).astype(np.float32)]


def _matrix_and_count(rng: np.random.Generator) -> list[Array]:
    return [*_matrix(rng), np.array(rng.integers(1, COLUMNS + 1), np.int32)]


def _list_and_bounds(rng: np.random.Generator) -> list[Array]:
    """A number that may count from the end, and one for the rest."""
    return [*one_list(rng), np.array([rng.integers(-3, 7)], np.int32), np.array([rng.integers(-1, 5)], np.int32)]


def _somewhere_positive(rng: np.random.Generator) -> list[Array]:
    return [np.append(rng.standard_normal(ELEMENTS - 1), 1).astype(np.float32)]


def greatest() -> bytes:
    """As many of each row as an input says, and what is looked up by their places."""
    builder = DynamicBuilder()
    x, k = builder.input((ROWS, COLUMNS), name="x"), builder.input((), "int32", name="k")
    values, places = builder.tensor((ROWS, 1)), builder.tensor((ROWS, 1), "int32")
    builder.op("TOPK_V2", [x, k], [values, places])
    table = builder.constant(np.arange(COLUMNS, dtype=np.float32) * 3)
    named = builder.add("GATHER", [table, places], (ROWS, ANY), axis=0)
    total = builder.add("ADD", [named, values], (ROWS, ANY))
    turned = builder.add("TRANSPOSE", [total, builder.ints([1, 0])], (ANY, ROWS))
    mean = builder.add("MEAN", [total, builder.ints([1])], (ROWS,), keep_dims=False)
    return builder.finish([values, places, turned, mean])


def parts() -> bytes:
    """Slices whose ends are inputs."""
    builder = DynamicBuilder()
    x, end, size = builder.input((ELEMENTS,)), builder.input((1,), "int32"), builder.input((1,), "int32")
    one, two = builder.ints([1]), builder.ints([2])
    first = builder.add("STRIDED_SLICE", [x, builder.ints([0]), end, one], (ANY,))
    few = builder.add("SLICE", [x, two, size], (ANY,))
    fewer = builder.add("STRIDED_SLICE", [first, one, builder.ints([3]), one], (ANY,))
    all_but_last = builder.add("STRIDED_SLICE", [first, builder.ints([0]), builder.ints([-1]), one], (ANY,))
    ends = [builder.add("NEG", [t], (ANY,)) for t in (first, few, fewer, all_but_last)]
    return builder.finish(ends)


def places() -> bytes:
    """Where a matrix is positive: coordinates, the numbers there, and rows that go on."""
    builder = DynamicBuilder()
    x = builder.input((ROWS, COLUMNS), name="x")
    mask = builder.add("GREATER", [x, builder.constant(np.float32(0))], (ROWS, COLUMNS), dtype="bool")
    where = builder.add("WHERE", [mask], (ANY, 2), dtype="int64")
    found = builder.add("GATHER_ND", [x, where], (ANY,))
    narrow = builder.add("CAST", [where], (ANY, 2), "int32")
    columns = builder.add("SLICE", [narrow, builder.ints([0, 1]), builder.ints([-1, 1])], (ANY, 1), "int32")
    flat = builder.add("RESHAPE", [columns, builder.ints([-1])], (ANY,), "int32", new_shape=[-1])
    rows = builder.add("GATHER", [builder.constant(np.eye(COLUMNS, dtype=np.float32)), flat], (ANY, COLUMNS), axis=0)
    column = builder.add("RESHAPE", [found, builder.ints([-1, 1])], (ANY, 1), new_shape=[-1, 1])
    scaled = builder.add("MUL", [rows, column], (ANY, COLUMNS))
    joined = builder.add("CONCATENATION", [scaled, column], (ANY, COLUMNS + 1), axis=1)
    layer = [builder.constant(np.eye(3, COLUMNS + 1, dtype=np.float32)), builder.constant(np.ones(3, np.float32))]
    result = builder.add("FULLY_CONNECTED", [joined, *layer], (ANY, 3))
    chances = builder.add("SOFTMAX", [result], (ANY, 3), beta=1.0)
    images = builder.add("RESHAPE", [joined, builder.ints([-1, 1, COLUMNS + 1])], (ANY, 1, COLUMNS + 1))
    return builder.finish([where, found, chances, images])


def reductions() -> bytes:
    """Over what a mask leaves, which is never nothing."""
    builder = DynamicBuilder()
    x = builder.input((ELEMENTS,), name="x")
    kept = builder.add("GATHER", [x, builder.positive(x)], (ANY,))
    axis = builder.ints([0])
    codes = ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")
    found = [builder.add(code, [kept, axis], (), keep_dims=False) for code in codes]
    negated = builder.add("NEG", [kept], (ANY,))
    best = builder.add("ARG_MAX", [negated, builder.ints(0)], (), "int32", output_type="INT32")
    chances = builder.add("SOFTMAX", [negated], (ANY,), beta=1.0)
    sums = builder.add("CUMSUM", [kept, builder.ints(0)], (ANY,), reverse=True, exclusive=False)
    size = builder.add("SHAPE", [kept], (1,), "int32", out_type="INT32")
    count = builder.add("RESHAPE", [size, builder.constant(np.zeros(0, np.int32))], (), "int32", new_shape=[])
    order = builder.tensor((1,)), builder.tensor((1,), "int32")
    builder.op("TOPK_V2", [negated, count], list(order))
    again = builder.add("GREATER", [kept, builder.constant(np.float32(0.5))], (ANY,), dtype="bool")
    large = builder.add("WHERE", [again], (ANY, 1), dtype="int64")
    return builder.finish([*found, best, chances, sums, *order, large])


def creations() -> bytes:
    """Numbers, fills, repetitions and margins as many as a mask leaves elements, and a result of a known size."""
    builder = DynamicBuilder()
    x = builder.input((ELEMENTS,), name="x")
    kept = builder.add("GATHER", [x, builder.positive(x)], (ANY,))
    size = builder.add("SHAPE", [kept], (1,), "int32", out_type="INT32")
    scalar = builder.add("RESHAPE", [size, builder.constant(np.zeros(0, np.int32))], (), "int32", new_shape=[])
    counted = builder.add("RANGE", [builder.ints(0), scalar, builder.ints(1)], (ANY,), dtype="int32")
    numbers = builder.add("CAST", [counted], (ANY,))
    pair = builder.add("PACK", [scalar, builder.ints(3)], (2,), "int32", values_count=2, axis=0)
    filled = builder.add("FILL", [pair, builder.constant(np.float32(2))], (ANY, 3))
    row = builder.constant(np.arange(3, dtype=np.float32).reshape(1, 3))
    spread = builder.add("BROADCAST_TO", [row, pair], (ANY, 3), version=2)
    multiples = builder.add("PACK", [scalar, builder.ints(2)], (2,), "int32", values_count=2, axis=0)
    tiled = builder.add("TILE", [row, multiples], (ANY, 6))
    total = builder.add("ADD", [filled, spread], (ANY, 3))
    rest = builder.add("SUB", [builder.ints([ELEMENTS + 2]), size], (1,), "int32")
    margin = builder.add("CONCATENATION", [builder.ints([1]), rest], (2,), "int32", axis=0)
    margins = builder.add("RESHAPE", [margin, builder.ints([1, 2])], (1, 2), "int32", new_shape=[1, 2])
    padded = builder.add("PAD", [numbers, margins], (ANY,))
    few = builder.add("MINIMUM", [scalar, builder.ints(3)], (), "int32")
    best = builder.tensor((1,)), builder.tensor((1,), "int32")
    builder.op("TOPK_V2", [x, few], list(best))
    return builder.finish([numbers, total, tiled, padded, *best])


def _boxes(rng: np.random.Generator) -> list[Array]:
    return [rng.standard_normal((12, 4)).astype(np.float32), rng.random(12).astype(np.float32)]


MODELS: dict[str, tuple[bytes, Draw]] = {
    "boolean_mask": (boolean_mask(), one_list),
    "mask_and_more": (mask_and_more(), one_list),
    "suppression": (suppression(), _boxes),
    "greatest": (greatest(), _matrix_and_count),
    "parts": (parts(), _list_and_bounds),
    "places": (places(), _matrix),
    "reductions": (reductions(), _somewhere_positive),
    "creations": (creations(), one_list),
}
