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
from tflgpu.model.tensor_info import Quantization

ROWS, COLUMNS = 5, 6


def _matrix(rng: np.random.Generator) -> list[Array]:
    """A matrix of which sometimes no number is positive, and sometimes all are."""
    return [(rng.standard_normal((ROWS, COLUMNS)) + rng.choice((-9, 0, 0, 9))).astype(np.float32)]


def _matrix_and_count(rng: np.random.Generator) -> list[Array]:
    return [*_matrix(rng), np.array(rng.integers(1, COLUMNS + 1), np.int32)]


def _list_and_bounds(rng: np.random.Generator) -> list[Array]:
    """A number that may count from the end, and one for the rest."""
    return [*one_list(rng), np.array([rng.integers(-3, 7)], np.int32), np.array([rng.integers(-1, 5)], np.int32)]


def _somewhere_positive(rng: np.random.Generator) -> list[Array]:
    return [np.append(rng.standard_normal(ELEMENTS - 1), 1).astype(np.float32)]


def greatest() -> bytes:
    """A TOPK_V2 whose k is an input, and a lookup by the places that it gives."""
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


CLASSES, MOST = 3, 10


def detector(height: int = 8, width: int = 10, candidates: int = 20, chosen: int = 15) -> bytes:
    """A head without anchors, as exports of YOLOv8 with suppression end: candidates, boxes that are left, and margins.

    Indices of boxes get a column of batches and one of classes, as in ONNX, and lose them again.
    """
    builder, count = DynamicBuilder(), height // 2 * width
    picture = builder.input((1, height, width, 3), name="picture")
    filters = 0.1 * np.random.default_rng(3).standard_normal((4 + CLASSES, 3, 3, 3)).astype(np.float32)
    layer = [builder.constant(filters), builder.constant(np.zeros(4 + CLASSES, np.float32))]
    image = builder.add(
        "CONV_2D", [picture, *layer], (1, height // 2, width, 4 + CLASSES), padding="SAME", stride_h=2, stride_w=1
    )
    table = builder.add("RESHAPE", [image, builder.ints([count, 4 + CLASSES])], (count, 4 + CLASSES))
    numbers = builder.add("LOGISTIC", [table], (count, 4 + CLASSES))

    def columns(x: int, start: int, size: int, rows: int) -> int:
        return builder.add("SLICE", [x, builder.ints([0, start]), builder.ints([rows, size])], (rows, size))

    best = builder.add("REDUCE_MAX", [columns(numbers, 4, CLASSES, count), builder.ints([1])], (count,))
    values, order = builder.tensor((candidates,)), builder.tensor((candidates,), "int32")
    builder.op("TOPK_V2", [best, builder.ints(candidates)], [values, order])
    rows = builder.add("GATHER", [numbers, order], (candidates, 4 + CLASSES), axis=0)
    labels = builder.add(
        "ARG_MAX", [columns(rows, 4, CLASSES, candidates), builder.ints(1)], (candidates,), "int32", output_type="INT32"
    )
    classes = builder.add("CAST", [labels], (candidates,))
    centres, halves = (
        columns(rows, 0, 2, candidates),
        builder.add("MUL", [columns(rows, 2, 2, candidates), builder.constant(np.float32(0.5))], (candidates, 2)),
    )
    corners = [builder.add(code, [centres, halves], (candidates, 2)) for code in ("SUB", "ADD")]
    boxes = builder.add("CONCATENATION", corners, (candidates, 4), axis=1)
    moved = builder.add(
        "ADD",
        [boxes, builder.add("RESHAPE", [classes, builder.ints([candidates, 1])], (candidates, 1))],
        (candidates, 4),
    )
    limits = [builder.ints(chosen), *(builder.constant(np.float32(v)) for v in (0.5, 0.7))]
    indices, found = builder.tensor((chosen,), "int32"), builder.tensor((), "int32")
    builder.op("NON_MAX_SUPPRESSION_V4", [moved, values, *limits], [indices, found])
    end = builder.add("PACK", [found], (1,), "int32", values_count=1, axis=0)
    kept = builder.add("STRIDED_SLICE", [indices, builder.ints([0]), end, builder.ints([1])], (ANY,), "int32")
    triple = builder.add("EXPAND_DIMS", [kept, builder.ints(1)], (ANY, 1), "int32")
    margin, zero = builder.ints([[0, 0], [1, 0]]), builder.ints(0)
    for width in (2, 3):
        triple = builder.add("PADV2", [triple, margin, zero], (ANY, width), "int32")
    last = builder.add("GATHER", [triple, builder.ints([2])], (ANY, 1), "int32", axis=1)
    places = builder.add("SQUEEZE", [last], (ANY,), "int32", squeeze_dims=[1])
    first = builder.add(
        "STRIDED_SLICE", [places, builder.ints([0]), builder.ints([MOST]), builder.ints([1])], (ANY,), "int32"
    )
    shape = builder.ints([-1, 1])
    parts = [builder.add("GATHER", [boxes, first], (ANY, 4), axis=0)]
    for x in (values, classes):
        taken = builder.add("GATHER", [x, first], (ANY,), axis=0)
        parts.append(builder.add("RESHAPE", [taken, shape], (ANY, 1), new_shape=[-1, 1]))
    found_boxes = builder.add("CONCATENATION", parts, (ANY, 6), axis=1)
    sizes = builder.add("SHAPE", [found_boxes], (2,), "int32", out_type="INT32")
    one = builder.add(
        "STRIDED_SLICE",
        [sizes, builder.ints([0]), builder.ints([1]), builder.ints([1])],
        (),
        "int32",
        shrink_axis_mask=1,
    )
    rest = builder.add("SUB", [builder.ints(MOST), one], (), "int32")
    margins = builder.add("PACK", [zero, rest, zero, zero], (4,), "int32", values_count=4, axis=0)
    margins = builder.add("RESHAPE", [margins, builder.ints([2, 2])], (2, 2), "int32", new_shape=[2, 2])
    padded = builder.add("PAD", [found_boxes, margins], (MOST, 6))
    return builder.finish([builder.add("EXPAND_DIMS", [padded, zero], (1, MOST, 6)), found_boxes])


def suppression_by_class() -> bytes:
    """The boxes that are left of each class, one class after another, as ONNX has them."""
    builder = DynamicBuilder()
    boxes, scores = builder.input((12, 4), name="boxes"), builder.input((CLASSES, 12), name="scores")
    limits = [builder.ints(6), *(builder.constant(np.float32(v)) for v in (0.3, 0.6))]
    lists = []
    for number in range(CLASSES):
        row = builder.add("SLICE", [scores, builder.ints([number, 0]), builder.ints([1, 12])], (1, 12))
        row = builder.add("RESHAPE", [row, builder.ints([12])], (12,))
        chosen, found = builder.tensor((6,), "int32"), builder.tensor((), "int32")
        builder.op("NON_MAX_SUPPRESSION_V4", [boxes, row, *limits], [chosen, found])
        size = builder.add("RESHAPE", [found, builder.ints([1])], (1,), "int32", new_shape=[1])
        kept = builder.add("SLICE", [chosen, builder.ints([0]), size], (ANY,), "int32")
        column = builder.add("RESHAPE", [kept, builder.ints([-1, 1])], (ANY, 1), "int32", new_shape=[-1, 1])
        margins = builder.ints([[0, 0], [1, 0]])
        lists.append(builder.add("PADV2", [column, margins, builder.ints(number)], (ANY, 2), "int32"))
    return builder.finish([builder.add("CONCATENATION", lists, (ANY, 2), "int32", axis=0)])


def _picture(rng: np.random.Generator) -> list[Array]:
    return [(rng.standard_normal((1, 8, 10, 3)) * rng.choice((0.1, 1, 2))).astype(np.float32)]


def _boxes_of_classes(rng: np.random.Generator) -> list[Array]:
    scores = rng.random((CLASSES, 12)) * rng.choice((0.5, 1, 2), (CLASSES, 1))
    return [rng.standard_normal((12, 4)).astype(np.float32), scores.astype(np.float32)]


def quantized_mask() -> bytes:
    """Integers where they stand for positive numbers, and what they stand for."""
    builder, grid = DynamicBuilder(), Quantization((1 / 16,), (3,), 0)
    x = builder.input((ELEMENTS,), name="x")
    integers = builder.add("QUANTIZE", [x], (ELEMENTS,), "int8", quantization=grid)
    places = builder.positive(builder.add("DEQUANTIZE", [integers], (ELEMENTS,)))
    kept = builder.add("GATHER", [integers, places], (ANY,), "int8", quantization=grid)
    column = builder.add("RESHAPE", [kept, builder.ints([-1, 1])], (ANY, 1), "int8", quantization=grid)
    return builder.finish([column, builder.add("DEQUANTIZE", [kept], (ANY,))])


def _boxes(rng: np.random.Generator) -> list[Array]:
    return [rng.standard_normal((12, 4)).astype(np.float32), rng.random(12).astype(np.float32)]


def kinds() -> bytes:
    """The different elements of a list, and of what a mask leaves of another one; and what is gathered by them."""
    builder = DynamicBuilder()
    x, y = builder.input((ELEMENTS,), "int32", name="x"), builder.input((ELEMENTS,), name="y")
    kept = builder.add("GATHER", [y, builder.positive(y)], (ANY,))
    found = []
    for given, dtype, size, wide in ((x, "int32", ELEMENTS, False), (kept, "float32", ANY, True)):
        index = "int64" if wide else "int32"
        signature = (ANY,) if size == ANY else None
        values = builder.tensor((1,), dtype, shape_signature=(ANY,))
        places = builder.tensor((1 if wide else size,), index, shape_signature=signature)
        builder.op("UNIQUE", [given], [values, places], {"idx_out_type": index})
        found += [values, builder.add("GATHER", [values, places], (size,), dtype)]
    return builder.finish(
        [
            builder.add("NEG", [x], (ANY,), dtype)
            for x, dtype in zip(found, ("int32", "int32", "float32", "float32"), strict=True)
        ]
    )


def _two_lists(rng: np.random.Generator) -> list[Array]:
    return [
        rng.integers(-2, 3, ELEMENTS).astype(np.int32),
        np.round(2 * rng.standard_normal(ELEMENTS)).astype(np.float32),
    ]


def scattered() -> bytes:
    """The elements that a mask selects of a matrix, back where it was among zeros; and how much that is."""
    builder = DynamicBuilder()
    x = builder.input((ROWS, COLUMNS), name="x")
    mask = builder.add("GREATER", [x, builder.constant(np.float32(0))], (ROWS, COLUMNS), dtype="bool")
    where = builder.add("CAST", [builder.add("WHERE", [mask], (ANY, 2), dtype="int64")], (ANY, 2), "int32")
    found = builder.add("GATHER_ND", [x, where], (ANY,))
    result = builder.add("SCATTER_ND", [where, found, builder.ints([ROWS, COLUMNS])], (ROWS, COLUMNS))
    return builder.finish([builder.add("NEG", [result], (ROWS, COLUMNS)), builder.add("NEG", [found], (ANY,))])


def sums_of_segments() -> bytes:
    builder = DynamicBuilder()
    x, ids = builder.input((ROWS, COLUMNS), name="x"), builder.input((ROWS,), "int32", name="ids")
    return builder.finish([builder.add("NEG", [builder.add("SEGMENT_SUM", [x, ids], (ANY, COLUMNS))], (ANY, COLUMNS))])


def _rows_and_segments(rng: np.random.Generator) -> list[Array]:
    ids = np.cumsum(rng.integers(0, 2, ROWS))
    return [*_matrix(rng), (ids - ids[0]).astype(np.int32)]


def ranges() -> bytes:
    """From, to and between numbers that are computed, in steps."""
    builder = DynamicBuilder()
    limits = builder.ints(0), builder.ints(6)
    few, more = (
        builder.add(
            "MINIMUM",
            [builder.add("MAXIMUM", [builder.input((), "int32"), limits[0]], (), "int32"), limits[1]],
            (),
            "int32",
        )
        for _ in range(2)
    )
    bounds = (
        (few, builder.ints(9), builder.ints(1)),
        (few, builder.ints(11), builder.ints(2)),
        (more, builder.ints(-4), builder.ints(-3)),
        (few, builder.add("ADD", [few, builder.ints(5)], (), "int32"), builder.ints(1)),
        (builder.ints(-7), more, builder.ints(5)),
    )
    counted = [builder.add("RANGE", list(each), (ANY,), "int32") for each in bounds]
    return builder.finish([builder.add("CAST", [each], (ANY,)) for each in counted])


def _two_numbers(rng: np.random.Generator) -> list[Array]:
    return [np.array(rng.integers(-1, 9), np.int32) for _ in range(2)]


MODELS: dict[str, tuple[bytes, Draw]] = {
    "boolean_mask": (boolean_mask(), one_list),
    "mask_and_more": (mask_and_more(), one_list),
    "suppression": (suppression(), _boxes),
    "greatest": (greatest(), _matrix_and_count),
    "parts": (parts(), _list_and_bounds),
    "places": (places(), _matrix),
    "reductions": (reductions(), _somewhere_positive),
    "creations": (creations(), one_list),
    "detector": (detector(), _picture),
    "quantized_mask": (quantized_mask(), one_list),
    "kinds": (kinds(), _two_lists),
    "sums_of_segments": (sums_of_segments(), _rows_and_segments),
    "scattered": (scattered(), _matrix),
    "ranges": (ranges(), _two_numbers),
    "suppression_by_class": (suppression_by_class(), _boxes_of_classes),
}
