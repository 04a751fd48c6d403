"""Chains of operators on integers and booleans, with some on floats between them.

Every number is exact: floats are small whole numbers, so that each result has to have numpy's bits. A network is many
chains that share nothing, each with outputs of its own: to compile one network takes less time than many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.ops.case import Case, Net, Tensor, largest
from tests.ops.tolerance import EXACT

Array = NDArray[Any]
Shape = tuple[int, ...]

ALL = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32")
MOST = 96  # elements of a tensor
LARGEST_FLOAT = 1 << 20  # whole numbers up to this stay exact through some sums and products


def _of(*names: str) -> frozenset[str]:
    return frozenset(names)


INTS = _of("int32", "int64")
SUMS = INTS | {"float32"}
SIGNED = SUMS | {"int16"}
MOVED = _of("bool", "int8", "uint8", "int16", "int32", "int64", "float32")
BITS = _of("int8", "uint8", "int16", "uint16", "int32", "uint32")

# Element types of which LiteRT's kernels compute each operator without quantization.
TYPES: Mapping[str, frozenset[str]] = {
    "ADD": SIGNED,
    "SUB": SUMS,
    "MUL": SIGNED | {"uint32"},
    "MAXIMUM": SIGNED | {"int8", "uint8"},
    "MINIMUM": SIGNED | {"int8", "uint8"},
    "FLOOR_DIV": _of("int8", "int16", "int32", "float32"),
    "FLOOR_MOD": SIGNED | {"int8"},
    "DIV": _of("int32"),
    "POW": _of("int32"),
    "SQUARED_DIFFERENCE": _of("int32", "float32"),
    "BITWISE_XOR": BITS,
    "RIGHT_SHIFT": BITS,
    "LOGICAL_AND": _of("bool"),
    "LOGICAL_OR": _of("bool"),
    "LOGICAL_NOT": _of("bool"),
    "EQUAL": SIGNED | {"bool"},
    "NOT_EQUAL": SUMS | {"bool"},
    "LESS": SIGNED,
    "LESS_EQUAL": SIGNED,
    "GREATER": SIGNED,
    "GREATER_EQUAL": SIGNED,
    "ABS": _of("int16", "int32", "float32"),
    "NEG": SIGNED | {"int8"},
    "SIGN": _of("int32", "float32"),
    "RELU": _of("float32"),
    "FLOOR": _of("float32"),
    "ZEROS_LIKE": SUMS,
    "SUM": SUMS | {"bool"},
    "REDUCE_PROD": SUMS | {"int8", "uint8", "int16", "bool"},
    "REDUCE_MAX": SIGNED | {"int8", "uint8", "bool"},
    "REDUCE_MIN": SIGNED | {"int8", "uint8", "bool"},
    "REDUCE_ANY": _of("bool"),
    "REDUCE_ALL": _of("bool"),
    "CUMSUM": SUMS,
    "GATHER": MOVED,
    "GATHER_ND": MOVED,
    "CONCATENATION": MOVED | {"uint32"},
    "PACK": MOVED - {"bool"} | {"uint32"},
    "PAD": MOVED,
    "PADV2": MOVED,
    "REVERSE_V2": MOVED,
    "ARG_MAX": _of("bool", "int8", "uint8", "int32", "float32"),
    "ARG_MIN": _of("bool", "int8", "uint8", "int32", "float32"),
    "ONE_HOT": _of("bool", "int8", "uint8", "int32", "int64", "float32"),
    "RANGE": SUMS,
    "SCATTER_ND": _of("int8", "uint8", "int32", "int64", "float32"),
    "ADD_N": _of("int32", "float32"),
}

# Types that only tflgpu computes: numpy alone judges networks that have them.
MORE_TYPES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("ADD", "SUB", "MAXIMUM", "MINIMUM", "DIV", "FLOOR_MOD"), _of("uint32")),
    **dict.fromkeys(("NOT_EQUAL", "EQUAL"), _of("uint16", "uint32")),
    **dict.fromkeys(("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), _of("uint32")),
    **dict.fromkeys(("GATHER", "PAD", "PADV2", "GATHER_ND", "REVERSE_V2"), _of("uint16", "uint32")),
    "FLOOR_DIV": _of("uint32", "int64"),
    "POW": _of("int16", "int64"),
    "SQUARED_DIFFERENCE": _of("int16", "int64"),
    "ABS": _of("int64"),
    "ARG_MAX": _of("int16", "int64"),
    "ARG_MIN": _of("int16", "int64"),
    "ONE_HOT": _of("int16", "uint16", "uint32"),
    "ADD_N": _of("int16", "int64"),
    "STABLEHLO_SHIFT_LEFT": _of("int8", "int16", "int32"),
    "CONCATENATION": _of("uint16"),
    "PACK": _of("bool", "uint16"),
}


class Chain:
    """One chain of a network.

    random: decides everything, so that a chain is the same alone and among others. more: whether to draw what LiteRT
    has no kernels for.
    """

    def __init__(self, net: Net, random: Random, *, more: bool) -> None:
        self.net, self.random, self.more = net, random, more
        self._values = np.random.default_rng(random.randrange(1 << 32))
        self.tensors: list[Tensor] = []

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.random.randrange(len(choices))]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def shape(self) -> Shape:
        sizes: list[int] = []
        for _ in range(self.one_of((0, 1, 1, 2, 2, 2, 3, 3, 4, 5))):
            sizes.append(min(self.one_of((1, 2, 3, 4, 5, 6, 8, 9)), max(1, MOST // max(1, prod(sizes)))))
        return tuple(sizes)

    def takes(self, code: str, x: Tensor) -> bool:
        name = x.value.dtype.name
        return name in TYPES.get(code, ()) or (self.more and name in MORE_TYPES.get(code, ()))

    def values(self, dtype: str, shape: Shape) -> Array:
        """Small numbers, or any, the ends of the type's range and numbers that no float or double holds among them."""
        if dtype == "bool":
            return self._values.random(shape) < 0.5
        if dtype == "float32":
            return self._values.integers(-8, 9, shape).astype(np.float32)
        ends = np.iinfo(dtype)
        if self.chance(0.5):
            return self._values.integers(max(ends.min, -5), 6, shape).astype(dtype)
        known = (ends.min, ends.min + 1, ends.max, ends.max - 1, 0, 1, -1, 2**24 + 1, 2**31 - 1, 2**31, 2**53 + 1)
        some = np.array([k for k in known if ends.min <= k <= ends.max], dtype)
        anything = self._values.integers(ends.min, ends.max, shape, dtype, endpoint=True)
        return np.where(self._values.random(shape) < 0.3, self._values.choice(some, shape), anything)

    def given(self, value: Array, constant: float = 0.5) -> Tensor:
        """An input, or a constant."""
        given = self.net.constant(value) if self.chance(constant) else self.net.input(value)
        return Tensor(given.index, value)  # not in double

    def index(self, values: Any, dtype: str = "int32") -> Tensor:
        """Numbers of places."""
        return self.given(np.array(values, dtype))

    def other(self, x: Tensor, *, least: int | None = None, most: int | None = None) -> Tensor:
        """An operand that broadcasts against ``x``: another tensor of its type, a new one, or itself."""
        if least is None and most is None and self.chance(0.4):
            fit = [y for y in self.tensors if y.value.dtype == x.value.dtype and _broadcasts(y.shape, x.shape)]
            return self.one_of(fit)
        shape = x.shape[self.random.randint(0, len(x.shape)) :] if self.chance(0.4) else x.shape
        value = self.values(x.value.dtype.name, tuple(1 if self.chance(0.2) else size for size in shape))
        if least is not None or most is not None:
            value = np.clip(value, least, most).astype(value.dtype)
        return self.given(value, 0.6)

    def op(self, code: str, inputs: Sequence[Tensor], value: Array, **options: Any) -> Tensor:
        version = options.pop("version", 1)
        return self.net.op(code, inputs, value, options, version=version)


Step = Callable[[Chain, Tensor], "Tensor | None"]


def _broadcasts(shape: Shape, target: Shape) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def _wrapped(function: Callable[..., Array]) -> Callable[..., Array]:
    """``function`` in the operands' own type, integers with wrap-around."""

    def computed(*operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*operands)).astype(operands[0].dtype)

    return computed


def _truncated(x: Array, y: Array) -> Array:
    quotient = x // y
    return quotient + ((x % y != 0) & ((x < 0) != (y < 0)))


BINARY: Mapping[str, Callable[..., Array]] = {
    "ADD": _wrapped(np.add),
    "SUB": _wrapped(np.subtract),
    "MUL": _wrapped(np.multiply),
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "FLOOR_DIV": _wrapped(np.floor_divide),
    "FLOOR_MOD": _wrapped(np.mod),
    "DIV": _wrapped(_truncated),
    "POW": _wrapped(np.power),
    "SQUARED_DIFFERENCE": _wrapped(lambda x, y: (x - y) * (x - y)),
    "BITWISE_XOR": np.bitwise_xor,
    "RIGHT_SHIFT": np.right_shift,
    "STABLEHLO_SHIFT_LEFT": _wrapped(np.left_shift),
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or,
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
}
UNARY: Mapping[str, Callable[..., Array]] = {
    "ABS": _wrapped(np.abs),
    "NEG": _wrapped(np.negative),
    "SIGN": np.sign,
    "LOGICAL_NOT": np.logical_not,
    "RELU": lambda x: np.maximum(x, 0),
    "FLOOR": np.floor,
    "ZEROS_LIKE": np.zeros_like,
}


def binary(c: Chain, x: Tensor) -> Tensor | None:
    codes = [code for code in BINARY if c.takes(code, x)]
    code = c.one_of(codes) if codes else None
    bits = x.value.dtype.itemsize * 8
    match code:
        case None:
            return None
        case "DIV" | "FLOOR_DIV" | "FLOOR_MOD":  # what divides the least number by -1, or by 0, ends LiteRT
            y = c.other(x, most=-2) if x.value.dtype.kind == "i" and c.chance(0.5) else c.other(x, least=1)
            result = BINARY[code](x.value, y.value)
            return c.op(code, [x, y], np.floor(result) if code == "FLOOR_DIV" else result)
        case "POW":
            pair = [x, c.other(x, least=0, most=5)]
            if (np.abs(x.value.astype(float)) ** pair[1].value > np.iinfo(x.value.dtype).max).any():
                return None  # LiteRT's does not wrap around
        case "RIGHT_SHIFT" | "STABLEHLO_SHIFT_LEFT":
            if np.broadcast_shapes(x.shape, (y := c.other(x, least=0, most=bits - 1)).shape) != y.shape:
                y = c.given(np.broadcast_to(y.value, x.shape))
            pair = [x, y]
        case _:
            y = c.other(x)
            pair = [x, y] if c.chance(0.6) else [y, x]
    return c.op(code, pair, BINARY[code](*(t.value for t in pair)))


def chained(c: Chain, x: Tensor) -> Tensor | None:
    """Sums and products of constants: what passes make one function of. Then another type, which sees all bits."""
    result = x
    for _ in range(c.random.randint(2, 3)):
        codes = [code for code in ("ADD", "SUB", "MUL", "BITWISE_XOR") if c.takes(code, x)]
        if not codes:
            return None
        code, scalar = c.one_of(codes), c.chance(0.5)
        y = c.values(x.value.dtype.name, () if scalar or not x.shape else x.shape[-1:])
        pair = [result, Tensor(c.net.constant(y).index, y)]
        result = c.op(code, pair, BINARY[code](*(t.value for t in pair)))
    return (cast(c, result) if c.chance(0.5) else None) or result


def unary(c: Chain, x: Tensor) -> Tensor | None:
    codes = [code for code in UNARY if c.takes(code, x)]
    return c.op(code, [x], UNARY[code](x.value)) if codes and (code := c.one_of(codes)) else None


def cast(c: Chain, x: Tensor) -> Tensor | None:
    """Floats stay within the range of the result, which no two sets of kernels treat alike."""
    dtype = c.one_of(ALL)
    if x.value.dtype.kind == "f" and dtype not in ("bool", "float32"):
        ends = np.iinfo(dtype)
        if x.value.size and not (ends.min <= x.value.min() and x.value.max() <= ends.max):
            return None
    if dtype == "float32" and x.value.size and np.abs(x.value.astype(np.float64)).max() > LARGEST_FLOAT:
        return None
    return c.op("CAST", [x], x.value.astype(dtype), in_data_type=x.value.dtype.name, out_data_type=dtype)


def select(c: Chain, x: Tensor) -> Tensor | None:
    y = c.other(x)
    masks = [t for t in c.tensors if t.value.dtype.kind == "b" and t.shape == x.shape]
    mask = c.one_of(masks) if masks else c.given(c.values("bool", x.shape), 0.3)
    pair = [x, y] if c.chance(0.5) else [y, x]
    return c.op("SELECT_V2", [mask, *pair], np.where(mask.value, *(t.value for t in pair)))


REDUCTIONS: Mapping[str, Callable[..., Array]] = {
    "SUM": np.sum,
    "REDUCE_PROD": np.prod,
    "REDUCE_MAX": np.max,
    "REDUCE_MIN": np.min,
    "REDUCE_ANY": np.any,
    "REDUCE_ALL": np.all,
}


def mean(c: Chain, x: Tensor) -> Tensor | None:
    """Towards zero. Sums of large numbers wrap around at another width in LiteRT."""
    if x.value.dtype.name not in INTS or not x.shape or largest(x.value) > 1000:
        return None
    axis = c.random.randrange(len(x.shape))
    value = np.trunc(x.value.mean(axis)).astype(x.value.dtype)
    return c.op("MEAN", [x, c.net.integers([axis])], value, keep_dims=False)


def reduction(c: Chain, x: Tensor) -> Tensor | None:
    codes = [code for code in REDUCTIONS if c.takes(code, x)]
    if not codes or not x.shape:
        return None
    code = c.one_of(codes)
    axes = [axis for axis in range(len(x.shape)) if c.chance(0.5)] or [c.random.randrange(len(x.shape))]
    kept = c.chance(0.5)
    with np.errstate(all="ignore"):
        value = np.asarray(REDUCTIONS[code](x.value, axis=tuple(axes), keepdims=kept)).astype(x.value.dtype)
    return c.op(code, [x, c.net.integers(axes)], value, keep_dims=kept)


def cumulative_sum(c: Chain, x: Tensor) -> Tensor | None:
    if not x.shape or not c.takes("CUMSUM", x):
        return None
    axis = c.random.randrange(len(x.shape))
    value = np.cumsum(x.value, axis, x.value.dtype)
    return c.op("CUMSUM", [x, c.net.integers(axis)], value, exclusive=False, reverse=False)


def arg_extreme(c: Chain, x: Tensor) -> Tensor | None:
    if not x.shape or not c.takes("ARG_MAX", x):
        return None
    code, function = c.one_of((("ARG_MAX", np.argmax), ("ARG_MIN", np.argmin)))
    axis, dtype = c.random.randrange(len(x.shape)), c.one_of(("int32", "int64"))
    return c.op(code, [x, c.net.integers([axis])], function(x.value, axis).astype(dtype), output_type=dtype)


def one_hot(c: Chain, x: Tensor) -> Tensor | None:
    """A one-hot encoding of numbers, some of which are no places."""
    dtype = c.one_of([name for name in ALL if c.takes("ONE_HOT", Tensor(0, np.empty(0, name)))])
    if x.value.dtype.name not in ("int32", "int64") or x.value.size > MOST // 4 or len(x.shape) > 4:
        return None
    if x.value.size and np.abs(x.value.astype(np.float64)).max() > 2**31 - 1:
        return None
    on, off = c.values(dtype, ()), c.values(dtype, ())
    value = np.where(x.value[..., None] == np.arange(4), on, off)
    share = 1.0 if c.more else 0.5  # tflgpu takes constants alone
    return c.op("ONE_HOT", [x, c.net.integers(4), c.given(on, share), c.given(off, share)], value, axis=-1)


def gather(c: Chain, x: Tensor) -> Tensor | None:
    if not x.shape or not c.takes("GATHER", x):
        return None
    axis = c.random.randrange(len(x.shape))
    index = c.index([c.random.randrange(x.shape[axis]) for _ in range(3)], c.one_of(("int32", "int64", "int16")))
    return c.op("GATHER", [x, index], np.take(x.value, index.value, axis), axis=axis)


def gather_nd(c: Chain, x: Tensor) -> Tensor | None:
    if not x.shape or not c.takes("GATHER_ND", x):
        return None
    index = c.index([[c.random.randrange(x.shape[0])] for _ in range(2)])
    return c.op("GATHER_ND", [x, index], x.value[index.value[:, 0]])


def scatter(c: Chain, x: Tensor) -> Tensor | None:
    """Rows, two of which may go to the same place: a sum."""
    if not x.shape or not c.takes("SCATTER_ND", x):
        return None
    index, rows = c.index([[c.random.randrange(5)] for _ in range(x.shape[0])]), (5, *x.shape[1:])
    value = np.zeros(rows, x.value.dtype)
    with np.errstate(all="ignore"):
        np.add.at(value, index.value[:, 0], x.value)
    return c.op("SCATTER_ND", [index, x, c.net.integers(rows)], value) if value.size <= MOST else None


def counted(c: Chain, x: Tensor) -> Tensor | None:
    """A RANGE of constants, which joins the last axis."""
    if not x.shape or not c.takes("RANGE", x):
        return None
    start, step, count = c.random.randint(-5, 5), c.one_of((1, 2, -1, 3)), x.shape[-1]
    ends = [c.net.constant(np.array(v, x.value.dtype)) for v in (start, start + step * count, step)]
    value = (start + step * np.arange(count)).astype(x.value.dtype)
    y = c.op("RANGE", ends, value)
    return c.op("ADD", [x, y], BINARY["ADD"](x.value, value)) if c.takes("ADD", x) else y


def movement(c: Chain, x: Tensor) -> Tensor | None:
    """An operator that moves elements of any type."""
    net, rank = c.net, len(x.shape)
    code = c.one_of(
        ("TRANSPOSE", "RESHAPE", "SLICE", "STRIDED_SLICE", "TILE", "BROADCAST_TO", "REVERSE_V2", "MIRROR_PAD")
    )
    if not rank or (code == "REVERSE_V2" and not c.takes(code, x)):
        return None
    axis = c.random.randrange(rank)
    extent = x.shape[axis]
    match code:
        case "TRANSPOSE":
            order = c.random.sample(range(rank), rank)
            return c.op(code, [x, net.integers(order)], x.value.transpose(order))
        case "RESHAPE":
            size = x.value.size
            divisor = c.one_of([n for n in range(1, size + 1) if size % n == 0])
            shape = c.one_of(((size,), (divisor, size // divisor), (1, divisor, size // divisor), (size, 1)))
            return c.op(code, [x, net.integers(shape)], x.value.reshape(shape), new_shape=[*shape])
        case "SLICE":
            first = c.random.randrange(extent)
            count = c.random.randint(1, extent - first)
            begin, size = [0] * rank, [*x.shape]
            begin[axis], size[axis] = first, count
            value = np.take(x.value, range(first, first + count), axis)
            return c.op(code, [x, net.integers(begin), net.integers(size)], value)
        case "STRIDED_SLICE":
            step = c.one_of((1, 2))
            ends = np.zeros(rank, np.int32), np.array(x.shape, np.int32), np.ones(rank, np.int32)
            ends[2][axis] = step
            value = np.take(x.value, range(0, extent, step), axis)
            return c.op(code, [x, *map(net.integers, ends)], value)
        case "TILE":
            times = [2 if i == axis else 1 for i in range(rank)]
            value = np.tile(x.value, times)
            return c.op(code, [x, net.integers(times)], value) if value.size <= MOST else None
        case "BROADCAST_TO":
            shape = (2, *x.shape)
            large = 2 * x.value.size > MOST or rank > 4
            value = np.broadcast_to(x.value, shape)
            return None if large else c.op(code, [x, net.integers(shape)], value, version=2)
        case "REVERSE_V2":
            return c.op(code, [x, net.integers([axis])], np.flip(x.value, axis))
        case _:
            margins = [(1, 1) if i == axis and extent > 1 else (0, 0) for i in range(rank)]
            value = np.pad(x.value, margins, "reflect")
            return c.op(code, [x, net.integers(margins)], value, mode="REFLECT") if value.size <= MOST else None


def joined(c: Chain, x: Tensor) -> Tensor | None:
    code = c.one_of(("CONCATENATION", "PACK", "PAD", "PADV2", "ADD_N"))
    if not x.shape or not c.takes(code, x) or 2 * x.value.size > MOST or len(x.shape) > 4:
        return None
    axis, dtype = c.random.randrange(len(x.shape)), x.value.dtype
    if code in ("PAD", "PADV2"):
        margins = [(c.random.randint(0, 1), 1) if i == axis else (0, 0) for i in range(len(x.shape))]
        fill = c.values(dtype.name, ()) if code == "PADV2" else np.zeros((), dtype)
        value = np.pad(x.value, margins, constant_values=fill)
        more = [c.net.constant(fill.reshape(1))] if code == "PADV2" else []
        return c.op(code, [x, c.net.integers(margins), *more], value)
    fit = [t for t in c.tensors if t.shape == x.shape and t.value.dtype == dtype]
    parts = [x, c.one_of(fit) if c.chance(0.5) else c.given(c.values(dtype.name, x.shape))]
    values = [t.value for t in parts]
    match code:
        case "CONCATENATION":
            return c.op(code, parts, np.concatenate(values, axis), axis=axis)
        case "PACK":
            return c.op(code, parts, np.stack(values, axis), axis=axis, values_count=2)
        case _:
            return c.op(code, parts, BINARY["ADD"](*values))


STEPS: Sequence[Step] = (
    *[binary] * 6, *[chained] * 2, *[unary] * 2, *[cast] * 3, select, *[reduction] * 2, mean, cumulative_sum,
    arg_extreme, one_hot, gather, gather_nd, scatter, counted, *[movement] * 3, *[joined] * 2,
)  # fmt: skip


def integer_chain(net: Net, random: Random, *, more: bool) -> Iterator[Tensor]:
    """Append a chain to a network. Gives the outputs: what no later step reads, and some of the others."""
    c = Chain(net, random, more=more)
    for _ in range(random.randint(1, 2)):
        dtype = c.one_of(ALL)
        c.tensors.append(c.given(c.values(dtype, c.shape()), constant=0.1))
    given, count, read = len(c.tensors), random.randint(3, 9), set[int]()
    for _ in range(4 * count):
        x = c.tensors[-1] if c.chance(0.7) else c.one_of(c.tensors)
        result = c.one_of(STEPS)(c, x)
        if result is not None and (result.value.dtype.kind != "f" or largest(result.value) <= LARGEST_FLOAT):
            read.add(x.index)
            c.tensors.append(result)
        if len(c.tensors) - given == count:
            break
    results = c.tensors[given:]
    yield from (t for t in results if t.index not in read or c.chance(0.15))


def integer_case(seeds: Sequence[int], *, more: bool) -> Case:
    """A network of a chain for each seed, which share nothing."""
    net = Net(0)
    for seed in seeds:
        for output in integer_chain(net, Random(seed), more=more):
            net.output(output)
    return net.case(EXACT)
