"""Models with WHILE and IF whose way only the values of a run decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.frontend.dynamic_models import ANY, Array, Draw, DynamicBuilder

Body = Callable[[DynamicBuilder, list[int]], list[int]]
Kind = tuple[str, tuple[int, ...]]  # element type and shape of a value


def while_loop(
    builder: DynamicBuilder, start: Sequence[int], kinds: Sequence[Kind], again: Body, step: Body
) -> list[int]:
    """Append a WHILE, and return its results. again: the boolean that its condition gives, as a list."""
    options = {}
    for name, body in (("cond", again), ("body", step)):
        inner = DynamicBuilder()
        values = [inner.input(shape, dtype) for dtype, shape in kinds]
        options[f"{name}_subgraph_index"] = builder.subgraph(inner, body(inner, values))
    results = [builder.tensor(shape, dtype) for dtype, shape in kinds]
    builder.op("WHILE", start, results, options)
    return results


def if_else(
    builder: DynamicBuilder, decision: int, given: Sequence[int], kinds: Sequence[Kind], *branches: Body
) -> list[int]:
    """Append an IF whose results have the kinds of what it is given."""
    options = {}
    for name, body in zip(("then", "else"), branches, strict=True):
        inner = DynamicBuilder()
        values = [inner.input(shape, dtype) for dtype, shape in kinds]
        options[f"{name}_subgraph_index"] = builder.subgraph(inner, body(inner, values))
    results = [builder.tensor(shape, dtype) for dtype, shape in kinds]
    builder.op("IF", [decision, *given], results, options)
    return results


def collatz(*, exchanged: bool = False) -> bytes:
    """How many steps lead to 1, and two values that change their signs, and places, in each.

    exchanged: they change nothing but places; LiteRT then loses one of them.
    """
    builder = DynamicBuilder()
    n, left, right = builder.input((1,), "int32"), builder.input((2, 3, 5)), builder.input((2, 3, 5))
    kinds: list[Kind] = [("int32", (1,)), ("int32", ()), ("float32", (2, 3, 5)), ("float32", (2, 3, 5))]

    def again(b: DynamicBuilder, values: list[int]) -> list[int]:
        return [b.add("GREATER", [values[0], b.ints([1])], (1,), dtype="bool")]

    def step(b: DynamicBuilder, values: list[int]) -> list[int]:
        n, count, left, right = values
        rest = b.add("FLOOR_MOD", [n, b.ints([2])], (1,), dtype="int32")
        odd = b.add("EQUAL", [rest, b.ints([1])], (1,), dtype="bool")
        up = b.add("ADD", [b.add("MUL", [n, b.ints([3])], (1,), "int32"), b.ints([1])], (1,), "int32")
        down = b.add("FLOOR_DIV", [n, b.ints([2])], (1,), dtype="int32")
        following = b.add("SELECT_V2", [odd, up, down], (1,), dtype="int32")
        pair = [right, left] if exchanged else [b.add("NEG", [t], (2, 3, 5)) for t in (right, left)]
        return [following, b.add("ADD", [count, b.ints(1)], (), "int32"), *pair]

    results = while_loop(builder, [n, builder.ints(0), left, right], kinds, again, step)
    return builder.finish([*results, builder.add("NEG", [results[2]], (2, 3, 5))])


def fading() -> bytes:
    """An image goes through a convolution as long as a level, which is halved, is above 1. One value never changes."""
    builder, rng = DynamicBuilder(), np.random.default_rng(5)
    image, level, shift = builder.input((1, 3, 4, 5)), builder.input(()), builder.input((5,))
    kinds: list[Kind] = [("float32", (1, 3, 4, 5)), ("float32", ()), ("float32", (5,)), ("float32", (2,))]
    weights = (rng.standard_normal((5, 3, 3, 5)) / 4).astype(np.float32)

    def again(b: DynamicBuilder, values: list[int]) -> list[int]:
        return [b.add("GREATER", [values[1], b.constant(np.float32(1))], (), dtype="bool")]

    def step(b: DynamicBuilder, values: list[int]) -> list[int]:
        image, level, shift, fixed = values
        window = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "fused_activation_function": "RELU"}
        constants = [b.constant(weights), b.constant(np.zeros(5, np.float32))]
        y = b.add("CONV_2D", [image, *constants], (1, 3, 4, 5), **window)
        return [
            b.add("TANH", [b.add("ADD", [y, shift], (1, 3, 4, 5))], (1, 3, 4, 5)),
            b.add("MUL", [level, b.constant(np.float32(0.5))], ()),
            shift,
            fixed,
        ]

    pair = builder.constant(np.array([3, 4], np.float32))
    results = while_loop(builder, [image, level, shift, pair], kinds, again, step)
    return builder.finish([results[0], results[2], results[3], builder.add("RELU", [results[3]], (2,))])


def counted_down() -> bytes:
    """A counter of steps of 3 from an input on, down to above another input, and no more often than a constant."""
    builder = DynamicBuilder()
    first, last, x = builder.input((), "int32"), builder.input((), "int32"), builder.input((1, 6))
    kinds: list[Kind] = [("int32", ()), ("int32", ()), ("int32", ()), ("float32", (1, 6))]

    def again(b: DynamicBuilder, values: list[int]) -> list[int]:
        above = b.add("GREATER_EQUAL", [values[0], values[1]], (), dtype="bool")
        below = b.add("LESS", [values[2], b.ints(7)], (), dtype="bool")
        return [b.add("LOGICAL_AND", [above, below], (), dtype="bool")]

    def step(b: DynamicBuilder, values: list[int]) -> list[int]:
        i, last, count, x = values
        y = b.add("ADD", [b.add("COS", [x], (1, 6)), b.add("CAST", [i], ())], (1, 6))
        down = b.add("SUB", [i, b.ints(3)], (), "int32")
        return [down, last, b.add("ADD", [b.ints(1), count], (), "int32"), y]

    return builder.finish(while_loop(builder, [first, last, builder.ints(0), x], kinds, again, step))


def branches() -> bytes:
    """IF a sum is positive, one layer, else a pooling; what follows is for the device in any case."""
    builder, rng = DynamicBuilder(), np.random.default_rng(6)
    x, offset = builder.input((1, 4, 4, 3)), builder.input((3,))
    kinds: list[Kind] = [("float32", (1, 4, 4, 3)), ("float32", (3,))]
    total = builder.add("SUM", [x, builder.ints([0, 1, 2, 3])], (), keep_dims=False)
    decision = builder.add("GREATER", [total, builder.constant(np.float32(0))], (), dtype="bool")
    weights = rng.standard_normal((3, 1, 1, 3)).astype(np.float32)

    def positive(b: DynamicBuilder, values: list[int]) -> list[int]:
        window = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "fused_activation_function": "NONE"}
        y = b.add("CONV_2D", [values[0], b.constant(weights), values[1]], (1, 4, 4, 3), **window)
        return [y, values[1]]

    def negative(b: DynamicBuilder, values: list[int]) -> list[int]:
        return [b.add("EXP", [values[0]], (1, 4, 4, 3)), b.constant(np.arange(3, dtype=np.float32))]

    y, kept = if_else(builder, decision, [x, offset], kinds, positive, negative)
    return builder.finish([builder.add("ADD", [builder.add("TANH", [y], (1, 4, 4, 3)), kept], (1, 4, 4, 3)), kept])


def a_branch_alone() -> bytes:
    """A branch that an input decides, and an output that is a constant: no operator computes it."""
    builder = DynamicBuilder()
    decision, x = builder.input((), "bool"), builder.input((2, 5))

    def negative(b: DynamicBuilder, values: list[int]) -> list[int]:
        return [b.add("NEG", values, (2, 5))]

    results = if_else(builder, decision, [x], [("float32", (2, 5))], negative, lambda b, values: values)
    return builder.finish([*results, builder.constant(np.arange(3, dtype=np.float32))])


def _collatz(rng: np.random.Generator) -> list[Array]:
    pair = rng.standard_normal((2, 2, 3, 5)).astype(np.float32)
    return [rng.integers(-1, 20, 1).astype(np.int32), *pair]


def _fading(rng: np.random.Generator) -> list[Array]:
    level = np.array(rng.choice((0.3, 1, 3, 40)), np.float32)
    return [rng.standard_normal((1, 3, 4, 5)).astype(np.float32), level, rng.standard_normal(5).astype(np.float32)]


def _counted_down(rng: np.random.Generator) -> list[Array]:
    limits = rng.integers(-4, 30, 2).astype(np.int32)
    return [limits[0], limits[1], rng.standard_normal((1, 6)).astype(np.float32)]


def _branches(rng: np.random.Generator) -> list[Array]:
    return [rng.standard_normal((1, 4, 4, 3)).astype(np.float32), rng.standard_normal(3).astype(np.float32)]


def _branch_alone(rng: np.random.Generator) -> list[Array]:
    return [np.asarray(rng.random() < 0.5), rng.normal(size=(2, 5)).astype(np.float32)]


MODELS: dict[str, tuple[Callable[[], bytes], Draw]] = {
    "collatz": (collatz, _collatz),
    "fading": (fading, _fading),
    "counted_down": (counted_down, _counted_down),
    "branches": (branches, _branches),
    "a branch alone": (a_branch_alone, _branch_alone),
}


def waiting() -> bytes:
    """x is lowered by an input as long as it is positive: never, if that is 0."""
    builder = DynamicBuilder()
    x, step_size = builder.input((), "int32"), builder.input((), "int32")

    def again(b: DynamicBuilder, values: list[int]) -> list[int]:
        return [b.add("GREATER", [values[0], b.ints(0)], (), dtype="bool")]

    def step(b: DynamicBuilder, values: list[int]) -> list[int]:
        return [b.add("SUB", [values[0], values[1]], (), "int32"), values[1]]

    return builder.finish(while_loop(builder, [x, step_size], [("int32", ())] * 2, again, step)[:1])


def growing() -> bytes:
    """A list is joined with itself as long as its size is below an input."""
    builder = DynamicBuilder()
    x, limit = builder.input((2,)), builder.input((), "int32")
    kinds: list[Kind] = [("int32", ()), ("float32", (2,)), ("int32", ())]

    def again(b: DynamicBuilder, values: list[int]) -> list[int]:
        return [b.add("LESS", [values[0], values[2]], (), dtype="bool")]

    def step(b: DynamicBuilder, values: list[int]) -> list[int]:
        longer = b.add("CONCATENATION", [values[1], values[1]], (ANY,), axis=0)
        return [b.add("ADD", [values[0], b.ints(1)], (), "int32"), longer, values[2]]

    return builder.finish(while_loop(builder, [builder.ints(0), x, limit], kinds, again, step)[1:2])
