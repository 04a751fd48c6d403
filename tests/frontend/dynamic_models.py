"""Small models with tensors whose sizes depend on data, as TensorFlow's converter writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.models import Builder

Array = NDArray[Any]
Draw = Callable[[np.random.Generator], list[Array]]

ANY = -1  # a size in these models that only a run can tell

ELEMENTS = 8


class DynamicBuilder(Builder):
    """A Builder that knows how the converter writes an unknown size: 1, and -1 in the signature."""

    def __init__(self, declared: int = 1) -> None:
        """declared: what the file says instead of an unknown size; if it is not 1, it has no signature either."""
        super().__init__()
        self._declared = declared

    def add(self, code: str, inputs: Sequence[int], shape: Sequence[int], *more: Any, **options: Any) -> int:
        sizes = [self._declared if size == ANY else size for size in shape]
        # LiteRT believes what the file says of a SLICE's result, and refuses a run with another size.
        if ANY in shape and (self._declared == 1 or code == "SLICE"):
            options["signature"] = list(shape)
        return super().add(code, inputs, sizes, *more, **options)

    def positive(self, x: int) -> int:
        """The indices of the elements of a list that are greater than 0."""
        mask = self.add("GREATER", [x, self.constant(np.float32(0))], (ELEMENTS,), dtype="bool")
        places = self.add("WHERE", [mask], (ANY, 1), dtype="int64")
        return self.add("SQUEEZE", [places], (ANY,), "int64", squeeze_dims=[1])


def _scaled(builder: DynamicBuilder, x: int) -> int:
    return builder.add("MUL", [x, builder.constant(np.array([10], np.float32))], (ELEMENTS,))


def boolean_mask(declared: int = 1) -> bytes:
    """10 * x where that is positive."""
    builder = DynamicBuilder(declared)
    x = _scaled(builder, builder.input((ELEMENTS,), name="x"))
    return builder.finish([builder.add("GATHER", [x, builder.positive(x)], (ANY,))])


def mask_and_more(declared: int = 1) -> bytes:
    """The selected elements of a mask go on: arithmetic, its own SHAPE, a sum, and a branch that no size touches."""
    builder = DynamicBuilder(declared)
    x = _scaled(builder, builder.input((ELEMENTS,), name="x"))
    kept = builder.add("GATHER", [x, builder.positive(x)], (ANY,))
    root = builder.add("SQRT", [kept], (ANY,))
    size = builder.add("SHAPE", [root], (1,), "int32", out_type="INT32")
    filled = builder.add("FILL", [size, builder.constant(np.float32(2))], (ANY,))
    total = builder.add("ADD", [root, filled], (ANY,))
    tail = builder.add("SUM", [total, builder.ints([0])], (), keep_dims=False)
    both = builder.add("MUL", [x, tail], (ELEMENTS,))
    aside = builder.add("TANH", [x], (ELEMENTS,))
    return builder.finish([total, tail, both, aside, size])


def suppression(declared: int = 1) -> bytes:
    """Boxes that NON_MAX_SUPPRESSION_V4 keeps, as many as it says, and a layer on top of them."""
    builder = DynamicBuilder(declared)
    raw, scores = builder.input((12, 4), name="boxes"), builder.input((12,), name="scores")
    boxes = builder.add("LOGISTIC", [raw], (12, 4))
    limits = [builder.ints(6), *(builder.constant(np.float32(v)) for v in (0.3, 0.6))]
    selected, count = builder.tensor((6,), "int32"), builder.tensor((), "int32")
    builder.op("NON_MAX_SUPPRESSION_V4", [boxes, scores, *limits], [selected, count])
    size = builder.add("RESHAPE", [count, builder.ints([1])], (1,), "int32", new_shape=[1])
    valid = builder.add("SLICE", [selected, builder.ints([0]), size], (ANY,), dtype="int32")
    kept = builder.add("GATHER", [boxes, valid], (ANY, 4))
    layer = [builder.constant(np.eye(3, 4, dtype=np.float32)), builder.constant(np.ones(3, np.float32))]
    result = builder.add("FULLY_CONNECTED", [kept, *layer], (ANY, 3), fused_activation_function="RELU")
    return builder.finish([result, selected, count])


def computed_bounds(declared: int = 1) -> bytes:
    """Most operators that take sizes, with a number that is an input, and arithmetic on what they give."""
    builder = DynamicBuilder(declared)
    x, n = builder.input((ELEMENTS,), name="x"), builder.input((1,), "int32", name="n")
    x = _scaled(builder, x)
    one, none = builder.ints([1]), builder.ints([0])
    taken = builder.add("SLICE", [x, none, n], (ANY,))
    margin = builder.add("RESHAPE", [n, builder.ints([1, 1])], (1, 1), "int32", new_shape=[1, 1])
    margins = builder.add("CONCATENATION", [margin, margin], (1, 2), "int32", axis=1)
    padded = builder.add("PADV2", [x, margins, builder.constant(np.array([7], np.float32))], (ANY,))
    strided = builder.add("STRIDED_SLICE", [x, none, n, one], (ANY,))
    tiled = builder.add("TILE", [x, n], (ANY,))
    scalar = builder.add("RESHAPE", [n, builder.constant(np.zeros(0, np.int32))], (), "int32", new_shape=[])
    counted = builder.add("RANGE", [builder.ints(0), scalar, builder.ints(1)], (ANY,), dtype="int32")
    best, places = builder.tensor((declared,)), builder.tensor((declared,), "int32")
    builder.op("TOPK_V2", [x, scalar], [best, places])
    shape = builder.add("CONCATENATION", [n, builder.ints([-1])], (2,), "int32", axis=0)
    table = builder.add("RESHAPE", [tiled, shape], (ANY, ANY))
    ends = [builder.add("NEG", [t], (ANY,)) for t in (taken, padded, strided, tiled, best)]
    return builder.finish([*ends, counted, places, table])


def computed_axes(declared: int = 1) -> bytes:
    """A SUM over an axis that is an input; the declared shape is right for one of them only."""
    builder = DynamicBuilder(declared)
    x, axis = builder.input((3, 5), name="x"), builder.input((1,), "int32", name="axis")
    total = builder.add("SUM", [x, axis], (ANY,), keep_dims=False)
    return builder.finish([builder.add("TANH", [total], (ANY,))])


def unequal_branches(declared: int = 1) -> bytes:
    """IF a sum is positive, the first two elements, else all of them twice."""
    builder = DynamicBuilder(declared)
    x = _scaled(builder, builder.input((ELEMENTS,), name="x"))
    total = builder.add("SUM", [x, builder.ints([0])], (), keep_dims=False)
    is_positive = builder.add("GREATER", [total, builder.constant(np.float32(0))], (), dtype="bool")
    few, many = DynamicBuilder(), DynamicBuilder()
    branches = [
        builder.subgraph(few, [few.add("SLICE", [few.input((ELEMENTS,)), few.ints([0]), few.ints([2])], (2,))]),
        builder.subgraph(many, [many.add("TILE", [many.input((ELEMENTS,)), many.ints([2])], (2 * ELEMENTS,))]),
    ]
    options = dict(zip(("then_subgraph_index", "else_subgraph_index"), branches, strict=True))
    chosen = builder.add("IF", [is_positive, x], (ANY,), **options)
    return builder.finish([builder.add("NEG", [chosen], (ANY,))])


def one_list(rng: np.random.Generator) -> list[Array]:
    """A list of numbers that are sometimes all negative."""
    return [(rng.standard_normal(ELEMENTS) - rng.choice((0, 1, 9))).astype(np.float32)]


def _boxes(rng: np.random.Generator) -> list[Array]:
    return [
        rng.standard_normal((12, 4)).astype(np.float32),
        (rng.random(12) * rng.choice((0.5, 1, 2))).astype(np.float32),
    ]


def _list_and_number(rng: np.random.Generator) -> list[Array]:
    return [*one_list(rng), rng.integers(1, ELEMENTS + 1, 1).astype(np.int32)]


def _matrix_and_axis(rng: np.random.Generator) -> list[Array]:
    return [rng.standard_normal((3, 5)).astype(np.float32), rng.integers(-2, 2, 1).astype(np.int32)]


# Each model, for the size that the file declares where only a run can tell it, and what draws its inputs.
MODELS: dict[str, tuple[Callable[[int], bytes], Draw]] = {
    "boolean_mask": (boolean_mask, one_list),
    "mask_and_more": (mask_and_more, one_list),
    "suppression": (suppression, _boxes),
    "computed_bounds": (computed_bounds, _list_and_number),
    "computed_axes": (computed_axes, _matrix_and_axis),
    "unequal_branches": (unequal_branches, one_list),
}
