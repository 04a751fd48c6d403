"""Non-maximum suppression by tiles in three WHILE loops, as TensorFlow's ``non_max_suppression_padded`` computes it.

Boxes have an order, the best first. Those of a tile are suppressed by the boxes of the tiles before it that are left,
then by each other, until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.frontend.dynamic_models import Array, DynamicBuilder

Values = list[int]
State = Sequence[tuple[str, tuple[int, ...]]]  # element types and shapes


def _while(
    builder: DynamicBuilder,
    caller: DynamicBuilder,
    state: State,
    first: Values,
    condition: Callable[[DynamicBuilder, Values], int],
    body: Callable[[DynamicBuilder, Values], Values],
) -> Values:
    """builder: of the model, which has all subgraphs. caller: of the subgraph with the loop."""
    test, step = DynamicBuilder(), DynamicBuilder()
    numbers = []
    for of, results in ((test, lambda b, v: [condition(b, v)]), (step, body)):
        given = [of.input(shape, dtype) for dtype, shape in state]
        numbers.append(builder.subgraph(of, results(of, given)))
    outputs = [caller.tensor(shape, dtype) for dtype, shape in state]
    options = dict(zip(("cond_subgraph_index", "body_subgraph_index"), numbers, strict=True))
    caller.op("WHILE", first, outputs, options)
    return outputs


class _Suppression:
    """The loops for batches of ``tiles`` tiles of ``size`` boxes each, of which ``most`` are wanted."""

    def __init__(self, batch: int, tiles: int, size: int, most: int, threshold: float) -> None:
        self.batch, self.tiles, self.size, self.most, self.threshold = batch, tiles, size, most, threshold
        self.builder = DynamicBuilder()

    def _number(self, b: DynamicBuilder, value: float) -> int:
        return b.constant(np.float32(value))

    def _overlaps(self, b: DynamicBuilder, first: int, second: int) -> int:
        """[batch, boxes of the first, boxes of the second]."""
        tall, wide = (self.batch, self.size, 1), (self.batch, 1, self.size)
        square = (self.batch, self.size, self.size)

        def corners(x: int) -> Values:
            parts = [b.tensor(tall) for _ in range(4)]
            b.op("SPLIT", [b.ints(2), x], parts, {"num_splits": 4})
            return parts

        def turned(x: int) -> int:
            return b.add("TRANSPOSE", [x, b.ints([0, 2, 1])], wide)

        def area(corners_of: Values) -> int:
            top, left, bottom, right = corners_of
            return b.add("MUL", [b.add("SUB", [bottom, top], tall), b.add("SUB", [right, left], tall)], tall)

        one, other = corners(first), corners(second)
        sides = []
        for low, high in ((0, 2), (1, 3)):
            end = b.add("MINIMUM", [one[high], turned(other[high])], square)
            start = b.add("MAXIMUM", [one[low], turned(other[low])], square)
            sides.append(b.add("MAXIMUM", [b.add("SUB", [end, start], square), self._number(b, 0)], square))
        both = b.add("MUL", sides, square)
        total = b.add("ADD", [area(one), turned(area(other))], square)
        union = b.add("ADD", [b.add("SUB", [total, both], square), self._number(b, 1e-8)], square)
        return b.add("DIV", [both, union], square)

    def _tile(self, b: DynamicBuilder, boxes: int, number: int) -> int:
        start = b.add("MUL", [number, b.ints(self.size)], (), "int32")
        begin = b.add("PACK", [b.ints(0), start, b.ints(0)], (3,), "int32", values_count=3, axis=0)
        size = b.ints([self.batch, self.size, 4])
        return b.add("SLICE", [boxes, begin, size], (self.batch, self.size, 4))

    def _by_earlier(self, b: DynamicBuilder, values: Values) -> Values:
        boxes, tile, number, until = values
        overlaps = self._overlaps(b, self._tile(b, boxes, number), tile)
        square, row = (self.batch, self.size, self.size), (self.batch, self.size)
        apart = b.add("LESS", [overlaps, self._number(b, self.threshold)], square, dtype="bool")
        left = b.add("REDUCE_ALL", [apart, b.ints([1])], row, "bool", keep_dims=False)
        factor = b.add("EXPAND_DIMS", [b.add("CAST", [left], row), b.ints(2)], (*row, 1))
        tile = b.add("MUL", [factor, tile], (*row, 4))
        return [boxes, tile, b.add("ADD", [number, b.ints(1)], (), "int32"), until]

    def _by_each_other(self, b: DynamicBuilder, values: Values) -> Values:
        overlaps, _, before = values
        square, column, row = (self.batch, self.size, self.size), (self.batch, self.size, 1), (self.batch, self.size)
        threshold = self._number(b, self.threshold)

        def below(x: int) -> int:
            greatest = b.add("REDUCE_MAX", [x, b.ints([1])], row, keep_dims=False)
            is_below = b.add("LESS", [greatest, threshold], row, dtype="bool")
            return b.add("RESHAPE", [b.add("CAST", [is_below], row), b.ints(column)], column)

        suppressing = b.add("MUL", [below(overlaps), overlaps], square)
        after = b.add("MUL", [below(suppressing), overlaps], square)
        total = b.add("SUM", [after, b.ints([1, 2])], (self.batch,), keep_dims=False)
        change = b.add("SUB", [before, total], (self.batch,))
        changes = b.add("GREATER", [change, threshold], (self.batch,), dtype="bool")
        return [after, b.add("REDUCE_ANY", [changes, b.ints([0])], (), "bool", keep_dims=False), total]

    def _one_tile(self, b: DynamicBuilder, values: Values) -> Values:
        boxes, found, number = values
        batch, size, tiles = self.batch, self.size, self.tiles
        tile_shape, square, boxes_shape = (batch, size, 4), (batch, size, size), (batch, tiles * size, 4)
        threshold = self._number(b, self.threshold)
        state: State = (("float32", boxes_shape), ("float32", tile_shape), ("int32", ()), ("int32", ()))
        first = [boxes, self._tile(b, boxes, number), b.ints(0), number]
        _, tile, _, _ = _while(
            self.builder, b, state, first, lambda t, v: t.add("LESS", v[2:], (), dtype="bool"), self._by_earlier
        )
        overlaps = self._overlaps(b, tile, tile)
        later = b.constant(np.triu(np.ones((1, size, size), np.bool_), 1))
        near = b.add("GREATER_EQUAL", [overlaps, threshold], square, dtype="bool")
        near = b.add("LOGICAL_AND", [later, near], square, dtype="bool")
        overlaps = b.add("MUL", [overlaps, b.add("CAST", [near], square)], square)
        total = b.add("SUM", [overlaps, b.ints([1, 2])], (batch,), keep_dims=False)
        state = (("float32", square), ("bool", ()), ("float32", (batch,)))
        start = [overlaps, b.constant(np.array(True)), total]
        overlaps, *_ = _while(self.builder, b, state, start, lambda _, v: v[1], self._by_each_other)
        sums = b.add("SUM", [overlaps, b.ints([1])], (batch, size), keep_dims=False)
        gone = b.add("CAST", [b.add("GREATER", [sums, self._number(b, 0)], (batch, size), dtype="bool")], (batch, size))
        left = b.add("SUB", [self._number(b, 1), gone], (batch, size))
        tile = b.add("MUL", [tile, b.add("EXPAND_DIMS", [left, b.ints(2)], (batch, size, 1))], tile_shape)
        places = b.constant(np.arange(tiles, dtype=np.int32))
        here = b.add("CAST", [b.add("EQUAL", [places, number], (tiles,), dtype="bool")], (tiles,))
        here = b.add("RESHAPE", [here, b.ints([1, tiles, 1, 1])], (1, tiles, 1, 1))
        wide = (batch, tiles, size, 4)
        new = b.add(
            "TILE", [b.add("EXPAND_DIMS", [tile, b.ints(1)], (batch, 1, size, 4)), b.ints([1, tiles, 1, 1])], wide
        )
        old = b.add("RESHAPE", [boxes, b.ints(wide)], wide)
        others = b.add("SUB", [self._number(b, 1), here], (1, tiles, 1, 1))
        boxes = b.add("ADD", [b.add("MUL", [new, here], wide), b.add("MUL", [old, others], wide)], wide)
        boxes = b.add("RESHAPE", [boxes, b.ints(boxes_shape)], boxes_shape)
        positive = b.add("GREATER", [tile, self._number(b, 0)], tile_shape, dtype="bool")
        is_left = b.add("REDUCE_ANY", [positive, b.ints([2])], (batch, size), "bool", keep_dims=False)
        count = b.add("SUM", [b.add("CAST", [is_left], (batch, size), "int32"), b.ints([1])], (batch,), "int32")
        found = b.add("ADD", [found, count], (batch,), "int32")
        return [boxes, found, b.add("ADD", [number, b.ints(1)], (), "int32")]

    def _goes_on(self, b: DynamicBuilder, values: Values) -> int:
        least = b.add("REDUCE_MIN", [values[1], b.ints([0])], (), "int32", keep_dims=False)
        wanted = b.add("LESS", [least, b.ints(self.most)], (), dtype="bool")
        more = b.add("LESS", [values[2], b.ints(self.tiles)], (), dtype="bool")
        return b.add("LOGICAL_AND", [wanted, more], (), dtype="bool")

    def model(self) -> bytes:
        """Takes boxes in their order, and gives which of them are left, and how many."""
        b, count = self.builder, self.tiles * self.size
        shape = (self.batch, count, 4)
        boxes = b.add("ABS", [b.input(shape, name="boxes")], shape)
        state: State = (("float32", shape), ("int32", (self.batch,)), ("int32", ()))
        first = [boxes, b.constant(np.zeros(self.batch, np.int32)), b.ints(0)]
        left, found, _ = _while(b, b, state, first, self._goes_on, self._one_tile)
        positive = b.add("GREATER", [left, self._number(b, 0)], shape, dtype="bool")
        is_left = b.add("REDUCE_ANY", [positive, b.ints([2])], shape[:2], "bool", keep_dims=False)
        order = b.constant(np.arange(count, 0, -1, dtype=np.int32).reshape(1, count))
        marks = b.add("MUL", [b.add("CAST", [is_left], shape[:2], "int32"), order], shape[:2], "int32")
        best = b.tensor((self.batch, self.most), "int32"), b.tensor((self.batch, self.most), "int32")
        b.op("TOPK_V2", [marks, b.ints(self.most)], list(best))
        places = b.add("SUB", [b.ints(count), best[0]], (self.batch, self.most), "int32")
        valid = b.add("MINIMUM", [found, b.ints(self.most)], (self.batch,), "int32")
        return b.finish([places, valid])


def padded_suppression(batch: int, tiles: int, size: int, most: int, threshold: float = 0.5) -> bytes:
    """The model."""
    return _Suppression(batch, tiles, size, most, threshold).model()


def draw_boxes(rng: np.random.Generator, batch: int, count: int, spread: float) -> Array:
    """Boxes that overlap more or less, with corners of which none is 0."""
    places = rng.uniform(0.1, spread, (batch, count, 2))
    return np.concatenate([places, places + rng.uniform(0.2, 1.2, (batch, count, 2))], 2).astype(np.float32)
