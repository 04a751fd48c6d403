"""Random quantized networks: each tensor has a grid of its own, of 8 or 16 bits; some parts compute in float.

Each operator may round to a number that is one step of its result's grid away from LiteRT's. What later operators make
of that is known: a bound for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod, sqrt
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.ops import windows
from tests.ops.case import ABSENT, Case
from tests.ops.reference import (
    ACTIVATIONS,
    hard_swish,
    logistic,
    relu,
    relu6,
    relu_n1_to_1,
    resize_bilinear,
    resize_nearest_neighbor,
    softmax,
)
from tests.ops.tolerance import Tolerance
from tests.ops.windows import Window
from tests.safety.drawn.drawing import LARGEST, Shape
from tflgpu.model.tensor_info import Quantization
from tflgpu.model.writer import ModelBuilder

Reals = NDArray[np.float64]
Function = Callable[..., Reals]

FLOAT_ERROR = 2e-5  # of a result in float, relative to the largest number of it


@dataclass(frozen=True)
class Grid:
    """Integers of a type, and the numbers for which they stand; floats if the type is float32."""

    dtype: str
    scale: float = 1.0
    zero: int = 0

    @property
    def quantization(self) -> Quantization | None:
        return None if self.dtype == "float32" else Quantization([self.scale], [self.zero])

    @property
    def step(self) -> float:
        return 0.0 if self.dtype == "float32" else self.scale

    def integers(self, reals: Reals) -> Reals:
        limits = np.iinfo(self.dtype)
        return np.clip(np.floor(reals / self.scale + 0.5) + self.zero, limits.min, limits.max)

    def rounded(self, reals: Reals) -> Reals:
        """The nearest numbers of the grid."""
        if self.dtype == "float32":
            return reals
        return np.asarray((self.integers(reals) - self.zero) * self.scale)


@dataclass(frozen=True)
class Quantized:
    """A tensor, the numbers for which its integers stand, and how far two right answers may be from each other."""

    index: int
    grid: Grid
    value: Reals
    error: Reals

    @property
    def shape(self) -> Shape:
        return self.value.shape


FIXED = {  # scales and zero points that LiteRT's kernels ask for
    "LOGISTIC": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "SOFTMAX": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "TANH": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)},
}


@dataclass
class Drawn:
    """A network under construction."""

    random: Random
    rng: np.random.Generator
    builder: ModelBuilder
    tensors: list[Quantized] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def grid(self, dtype: str, value: Reals) -> Grid:
        """A grid for these numbers: most often asymmetric, and at times too small for them."""
        if dtype == "float32":
            return Grid(dtype)
        low, high = min(0.0, float(value.min())), max(0.0, float(value.max()))
        share = self.random.choice((0.6, 1.0, 1.0, 1.0, 1.3))
        limits = np.iinfo(dtype)
        if dtype == "int16":
            scale = float(np.float32(max(-low, high, 1e-3) * share / 32767))
            return Grid(dtype, scale, 0)
        scale = float(np.float32(max(high - low, 1e-3) * share / 255))
        zero = round(limits.min - share * low / scale) if self.chance(0.9) else (limits.min + limits.max + 1) // 2
        return Grid(dtype, scale, int(np.clip(zero, limits.min, limits.max)))

    def op(
        self,
        code: str,
        inputs: Sequence[Quantized | int],
        value: Reals,
        error: Reals,
        grid: Grid | str,
        *,
        rounds: bool = True,
        activation: str | None = None,
        **options: object,
    ) -> Quantized:
        """Append an operator; its value is that before a fused activation, its error that which its inputs cause."""
        value = value if activation is None else np.asarray(ACTIVATIONS[activation](value))
        grid = self.grid(grid, value) if isinstance(grid, str) else grid
        if activation is not None:
            options["fused_activation_function"] = activation
        output = self.builder.tensor(value.shape, grid.dtype, quantization=grid.quantization)
        indices = [x if isinstance(x, int) else x.index for x in inputs if x != ABSENT]
        self.builder.op(code, indices, [output], options or None)
        self.log.append(f"{code}{indices} {options} -> {output} {value.shape} {grid}")
        own = grid.step if rounds else 0.0
        if grid.dtype == "float32":
            own = FLOAT_ERROR * float(np.abs(value).max(initial=1.0))
        result = Quantized(output, grid, grid.rounded(value), np.broadcast_to(error, value.shape) + own)
        self.tensors.append(result)
        return result

    def moved(self, code: str, inputs: Sequence[Quantized | int], move: Function, **options: object) -> Quantized:
        """Append an operator that moves the elements of its first input."""
        x = inputs[0]
        assert isinstance(x, Quantized)
        return self.op(code, inputs, move(x.value), move(x.error), x.grid, rounds=False, **options)

    def integers(self, values: object) -> int:
        return self.builder.constant(np.array(values, np.int32))

    def activation(self) -> str:
        return self.random.choice(("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1"))

    def one_of(self, least: int = 1, most: int = 5, dtypes: Sequence[str] = ()) -> Quantized:
        """A tensor of such a rank and type, most often the last one."""
        quantized = [x for x in self.tensors if x.grid.dtype != "float32"]
        fit = [x for x in quantized if least <= len(x.shape) <= most and (not dtypes or x.grid.dtype in dtypes)]
        if fit:
            return fit[-1] if self.chance(0.5) else self.random.choice(fit)
        x = quantized[-1]
        if dtypes and x.grid.dtype not in dtypes:
            x = self.requantized(x, "int8")
        return x if least <= len(x.shape) <= most else self.ranked(x, least)

    def image(self, dtypes: Sequence[str] = ()) -> Quantized:
        return self.one_of(4, 4, dtypes)

    def ranked(self, x: Quantized, rank: int) -> Quantized:
        axes = [n for n in x.shape if n > 1][-rank:]
        shape = (*[1] * (rank - len(axes)), *axes)
        if prod(shape) != x.value.size:
            shape = (
                (*[1] * (rank - 1), x.value.size)
                if rank < 3
                else (x.value.size // x.shape[-1], *[1] * (rank - 2), x.shape[-1])
            )
        return self.reshaped(x, shape)

    def reshaped(self, x: Quantized, shape: Shape) -> Quantized:
        return self.moved("RESHAPE", [x, self.integers(shape)], lambda v: v.reshape(shape), new_shape=[*shape])

    def requantized(self, x: Quantized, dtype: str) -> Quantized:
        return self.op("QUANTIZE", [x], x.value, x.error, dtype)

    def other(self, x: Quantized, grid: Grid | None = None) -> Quantized:
        """Another operand of the type of ``x``: a tensor of its shape, a constant, or ``x`` itself."""
        fit = [y for y in self.tensors if y.shape == x.shape and y.grid.dtype == x.grid.dtype]
        if grid is not None:
            fit = [y for y in fit if y.grid == grid]
        if fit and self.chance(0.6):
            return self.random.choice(fit)
        shape = x.shape if self.chance(0.3) else (1,) * (len(x.shape) - 1) + x.shape[-1:]
        if grid is not None:
            shape = x.shape
        if self.chance(0.2) and grid is None:
            shape = ()
        value = np.asarray(self.rng.standard_normal(shape) * self.random.choice((0.3, 1.0, 2.0)))
        return self.constant(value, grid or self.grid(x.grid.dtype, value))

    def constant(self, value: Reals, grid: Grid) -> Quantized:
        index = self.builder.constant(grid.integers(value).astype(grid.dtype), quantization=grid.quantization)
        return Quantized(index, grid, grid.rounded(value), np.zeros(value.shape))

    def weights(
        self, x: Quantized, shape: Shape, axis: int, terms: int, has_bias: bool = True
    ) -> tuple[int, Reals, int, Reals]:
        """Weights and bias with their numbers: for each channel a scale, or for all one; uint8 has a zero point.

        LiteRT's integer convolutions crash without a bias.
        """
        out, spread = shape[axis], 2.0 / sqrt(terms)
        zero = self.random.randint(90, 160) if x.grid.dtype == "uint8" else 0
        shared = x.grid.dtype == "uint8" or self.chance(0.3)
        scales = self.rng.uniform(0.2, 1.5, 1 if shared else out).astype(np.float32) * np.float32(spread / 127)
        least = 0 if zero else -128 if self.chance(0.1) else -127
        integers = self.rng.integers(least, least + 255, shape)
        along = [1] * len(shape)
        along[axis] = scales.size
        reals = (integers - zero) * scales.astype(np.float64).reshape(along)
        quantization = Quantization([float(s) for s in scales], [zero] * scales.size, axis)
        weights = self.builder.constant(integers.astype("uint8" if zero else "int8"), quantization=quantization)
        of_bias = (scales * np.float32(x.grid.scale)).astype(np.float32)
        if not has_bias:
            return weights, reals, ABSENT, np.zeros(out)
        largest = min(1.0 / float(of_bias.max()), 2.0**30)
        biases = np.rint(self.rng.uniform(-largest, largest, out))
        bias = self.builder.constant(
            biases.astype(np.int64 if x.grid.dtype == "int16" else np.int32),
            quantization=Quantization([float(s) for s in of_bias], [0] * of_bias.size),
        )
        return weights, reals, bias, np.asarray(biases * of_bias.astype(np.float64))

    def window(self, x: Quantized, largest: int = 3) -> tuple[Window, dict[str, object]] | None:
        kernel = (self.random.randint(1, largest), self.random.randint(1, largest))
        stride = (self.random.randint(1, 2), self.random.randint(1, 2))
        padding = self.random.choice(("SAME", "VALID"))
        if any(k > n for k, n in zip(kernel, x.shape[1:3], strict=True)):
            return None
        options = {"padding": padding, "stride_h": stride[0], "stride_w": stride[1]}
        return Window(kernel, stride, padding=padding), options

    def dilated(self, x: Quantized, window: Window, options: dict[str, object]) -> Window:
        dilation = (self.random.randint(1, 2), self.random.randint(1, 2))
        reach = [(k - 1) * d + 1 for k, d in zip(window.kernel, dilation, strict=True)]
        if window.stride != (1, 1) or any(r > n for r, n in zip(reach, x.shape[1:3], strict=True)):
            return window
        options.update(dilation_h_factor=dilation[0], dilation_w_factor=dilation[1])
        return Window(window.kernel, window.stride, dilation, window.padding)


INTEGERS_OF_8_BITS = ("int8", "uint8")
ALL_TYPES = ("int8", "uint8", "int16")


def binary(d: Drawn) -> None:
    x = d.one_of(1, 4)
    y = d.other(x)
    code = d.random.choice(("ADD", "ADD", "SUB", "MUL", "MUL"))
    if code == "MUL":
        value = x.value * y.value
        error = np.abs(x.value) * y.error + np.abs(y.value) * x.error + x.error * y.error
    else:
        value, error = x.value + (y.value if code == "ADD" else -y.value), x.error + y.error
    inputs = [x, y]
    if code != "SUB" and d.chance(0.3):
        inputs = [y, x]
    d.op(code, inputs, value, error, x.grid.dtype, activation=d.activation())


def extremum(d: Drawn) -> None:
    x = d.one_of(1, 4)
    y = d.other(x, x.grid)
    code, of = d.random.choice((("MAXIMUM", np.maximum), ("MINIMUM", np.minimum)))
    d.op(code, [x, y], of(x.value, y.value), np.maximum(x.error, y.error), x.grid, rounds=False)


UNARY: dict[str, tuple[Function, float]] = {
    "RELU": (relu, 1.0),
    "RELU6": (relu6, 1.0),
    "RELU_N1_TO_1": (relu_n1_to_1, 1.0),
    "LOGISTIC": (logistic, 0.25),
    "TANH": (np.tanh, 1.0),
    "HARD_SWISH": (hard_swish, 1.5),
    "LEAKY_RELU": (lambda v: np.where(v < 0, 0.25 * v, v), 1.0),
    "ABS": (np.abs, 1.0),
}


def unary(d: Drawn) -> None:
    code = d.random.choice([*UNARY])
    x = d.one_of(
        1, 4, () if code in ("LOGISTIC", "TANH", "LEAKY_RELU") else INTEGERS_OF_8_BITS if code != "ABS" else ("int8",)
    )
    function, slope = UNARY[code]
    fixed = FIXED.get(code, {}).get(x.grid.dtype)
    options = {"alpha": 0.25} if code == "LEAKY_RELU" else {}
    value = function(x.value)
    grid = Grid(x.grid.dtype, *fixed) if fixed else d.grid(x.grid.dtype, value)
    from_table = 2 * grid.scale if fixed and x.grid.dtype == "int16" else 0.0  # LiteRT's tables are that coarse
    d.op(code, [x], value, slope * x.error + from_table, grid, **options)


def soft_max(d: Drawn) -> None:
    x = d.one_of(2, 4)
    error = np.minimum(1.0, 2 * x.error.max(axis=-1, keepdims=True)) + np.zeros(x.shape)
    grid = Grid(x.grid.dtype, *FIXED["SOFTMAX"][x.grid.dtype])
    value = softmax(x.value)
    d.op("SOFTMAX", [x], value, error * (value + error), grid, beta=1.0)


def convolution(d: Drawn) -> None:
    x = d.image()
    if (drawn := d.window(x)) is None:
        return
    window, options = drawn
    window = d.dilated(x, window, options)
    out, depth = d.random.choice((1, 3, 4, 7, 8, 16, 20, 33)), x.shape[3]
    if x.grid.dtype == "int8" and d.chance(0.2):
        groups = d.random.choice([n for n in (1, 2, 4) if depth % n == 0])
        out, depth = groups * d.random.choice((1, 3, 4, 8, 16)), depth // groups
    weights, reals, bias, biases = d.weights(x, (out, *window.kernel, depth), 0, depth * prod(window.kernel))
    value = windows.conv_2d(x.value, reals, biases, window)
    if value.size <= LARGEST:
        error = windows.conv_2d(x.error, np.abs(reals), np.zeros(out), window)
        d.op("CONV_2D", [x, weights, bias], value, error, x.grid.dtype, activation=d.activation(), **options)


def depthwise(d: Drawn) -> None:
    x = d.image()
    if (drawn := d.window(x)) is None:
        return
    window, options = drawn
    window = d.dilated(x, window, options)
    multiplier = d.random.choice((1, 1, 1, 2))
    out = multiplier * x.shape[3]
    weights, reals, bias, biases = d.weights(x, (1, *window.kernel, out), 3, prod(window.kernel))
    value = windows.depthwise_conv_2d(x.value, reals, biases, window)
    if value.size <= LARGEST:
        error = windows.depthwise_conv_2d(x.error, np.abs(reals), np.zeros(out), window)
        options |= {"depth_multiplier": multiplier}
        d.op("DEPTHWISE_CONV_2D", [x, weights, bias], value, error, x.grid.dtype, activation=d.activation(), **options)


def transpose_convolution(d: Drawn) -> None:
    x = d.image()
    kernel, stride = (d.random.randint(1, 4), d.random.randint(1, 4)), (d.random.randint(1, 2), d.random.randint(1, 2))
    padding, out = d.random.choice(("SAME", "VALID")), d.random.choice((1, 3, 4, 8))
    window = Window(kernel, stride, padding=padding)
    more = [0 if padding == "SAME" else max(k - s, 0) for k, s in zip(kernel, stride, strict=True)]
    size = tuple(n * s + m for n, s, m in zip(x.shape[1:3], stride, more, strict=True))
    terms = max(1, x.shape[3] * prod(kernel) // prod(stride))
    weights, reals, bias, biases = d.weights(x, (out, *kernel, x.shape[3]), 0, terms, d.chance(0.7))
    value = windows.transpose_conv(x.value, reals, biases, window, (size[0], size[1]))
    if value.size <= LARGEST:
        error = windows.transpose_conv(x.error, np.abs(reals), np.zeros(out), window, (size[0], size[1]))
        shape = d.integers([x.shape[0], *size, out])
        options: dict[str, object] = {"padding": padding, "stride_h": stride[0], "stride_w": stride[1]}
        d.op("TRANSPOSE_CONV", [shape, weights, x, bias], value, error, x.grid.dtype, **options)


def fully_connected(d: Drawn) -> None:
    x = d.one_of(2, 4)
    depth, out = x.shape[-1], d.random.choice((1, 3, 4, 7, 8, 20, 33))
    weights, reals, bias, biases = d.weights(x, (out, depth), 0, depth, d.chance(0.7))
    value = x.value.reshape(-1, depth) @ reals.T + biases
    if value.size <= LARGEST:
        error = x.error.reshape(-1, depth) @ np.abs(reals).T
        d.op("FULLY_CONNECTED", [x, weights, bias], value, error, x.grid.dtype, activation=d.activation())


def matmul(d: Drawn) -> None:
    x = d.one_of(2, 4, ("int8", "int16"))
    columns = d.random.choice((1, 3, 4, 8))
    value = d.rng.standard_normal((*x.shape[:-2], x.shape[-1], columns)) / sqrt(x.shape[-1])
    same = [y for y in d.tensors if y.shape == x.shape and y.grid.dtype == x.grid.dtype]
    turned = d.chance(0.4)
    y = d.random.choice(same) if turned else d.constant(value, d.grid(x.grid.dtype, value))
    right, its_error = (v.swapaxes(-1, -2) if turned else v for v in (y.value, y.error))
    result = x.value @ right
    if result.size <= LARGEST:
        error = np.abs(x.value) @ its_error + x.error @ np.abs(right) + x.error @ its_error
        d.op("BATCH_MATMUL", [x, y], result, error, x.grid.dtype, adj_y=turned)


def pool(d: Drawn) -> None:
    x = d.image()
    if (drawn := d.window(x, 4)) is None:
        return
    window, options = drawn
    options |= {"filter_height": window.kernel[0], "filter_width": window.kernel[1]}
    averages = d.chance(0.5)
    code, of = ("AVERAGE_POOL_2D", windows.average_pool_2d) if averages else ("MAX_POOL_2D", windows.max_pool_2d)
    d.op(
        code,
        [x],
        of(x.value, window),
        of(x.error, window),
        x.grid,
        rounds=averages,
        activation=d.activation(),
        **options,
    )


def reduction(d: Drawn) -> None:
    x = d.one_of(2, 4)
    axes = d.random.choice(([1, 2], [0], [1], [len(x.shape) - 1], [*range(len(x.shape))]))
    axes = sorted({a for a in axes if a < len(x.shape)})
    code, keep = d.random.choice(("MEAN", "MEAN", "MEAN", "REDUCE_MAX")), d.chance(0.7)
    of: Function = {"MEAN": np.mean, "REDUCE_MAX": np.max}[code]
    value, error = (np.asarray(of(v, axis=tuple(axes), keepdims=keep)) for v in (x.value, x.error))
    if value.ndim:
        grid = x.grid if code == "REDUCE_MAX" else x.grid.dtype
        d.op(code, [x, d.integers(axes)], value, error, grid, rounds=code != "REDUCE_MAX", keep_dims=keep)


def resize(d: Drawn) -> None:
    linear = d.chance(0.5)
    x = d.image(INTEGERS_OF_8_BITS if linear else ())  # LiteRT's weights have too few bits for 16
    size = (d.random.randint(1, 9), d.random.randint(1, 9))
    if x.shape[0] * prod(size) * x.shape[3] > LARGEST:
        return
    corners = d.random.choice(({}, {"align_corners": True}, {"half_pixel_centers": True}))
    of = resize_bilinear if linear else resize_nearest_neighbor
    code = "RESIZE_BILINEAR" if linear else "RESIZE_NEAREST_NEIGHBOR"
    value, error = (np.asarray(of(v, size, **corners)) for v in (x.value, x.error))
    d.op(code, [x, d.integers(size)], value, error, x.grid, rounds=linear, **corners)


def concatenation(d: Drawn) -> None:
    """LiteRT's kernel of uint8 takes several grids; for the others converters put in a QUANTIZE."""
    x = d.one_of(1, 4)
    axis = d.random.randrange(len(x.shape))
    like = [
        y
        for y in d.tensors
        if y.grid.dtype == x.grid.dtype
        and len(y.shape) == len(x.shape)
        and all(n == m or a == axis for a, (n, m) in enumerate(zip(y.shape, x.shape, strict=True)))
    ]
    parts = [x, *(d.random.choice(like) for _ in range(d.random.randint(1, 3)))]
    grid = d.grid(x.grid.dtype, np.concatenate([p.value.reshape(-1) for p in parts]))
    if x.grid.dtype != "uint8":
        grid = x.grid
        parts = [p if p.grid == grid else d.op("QUANTIZE", [p], p.value, p.error, grid) for p in parts]
    value, error = (np.concatenate(v, axis) for v in zip(*((p.value, p.error) for p in parts), strict=True))
    if value.size <= LARGEST:
        d.op("CONCATENATION", parts, value, error, grid, rounds=x.grid.dtype == "uint8", axis=axis)


def pad(d: Drawn) -> None:
    x = d.one_of(1, 4)
    around = [(0, 0) if d.chance(0.4) else (d.random.randint(0, 2), d.random.randint(0, 2)) for _ in x.shape]
    if np.pad(x.value, around).size <= LARGEST:
        d.moved("PAD", [x, d.integers(around)], lambda v: np.pad(v, around))


def reshape(d: Drawn) -> None:
    x = d.one_of()
    size = x.value.size
    first = d.random.choice([n for n in range(1, size + 1) if size % n == 0])
    d.reshaped(x, (first, size // first) if d.chance(0.5) else (1, first, 1, size // first))


def transpose(d: Drawn) -> None:
    x = d.one_of(2, 4)
    order = d.random.sample(range(len(x.shape)), len(x.shape))
    d.moved("TRANSPOSE", [x, d.integers(order)], lambda v: v.transpose(order))


def slice_(d: Drawn) -> None:
    x = d.one_of(1, 4)
    begin = [d.random.randrange(n) if d.chance(0.4) else 0 for n in x.shape]
    size = [d.random.randint(1, n - b) for n, b in zip(x.shape, begin, strict=True)]
    if d.chance(0.5):
        index = tuple(slice(b, b + s) for b, s in zip(begin, size, strict=True))
        d.moved("SLICE", [x, d.integers(begin), d.integers(size)], lambda v: v[index])
        return
    end = [b + s for b, s in zip(begin, size, strict=True)]
    strides = [d.random.randint(1, 2) for _ in x.shape]
    strided = tuple(slice(b, e, s) for b, e, s in zip(begin, end, strides, strict=True))
    d.moved("STRIDED_SLICE", [x, d.integers(begin), d.integers(end), d.integers(strides)], lambda v: v[strided])


def split(d: Drawn) -> None:
    x = d.one_of(1, 4)
    axis = d.random.randrange(len(x.shape))
    counts = [n for n in (2, 3, 4) if x.shape[axis] % n == 0]
    if not counts:
        return
    count = d.random.choice(counts)
    parts = [
        Quantized(d.builder.tensor(v.shape, x.grid.dtype, quantization=x.grid.quantization), x.grid, v, e)
        for v, e in zip(np.split(x.value, count, axis), np.split(x.error, count, axis), strict=True)
    ]
    d.builder.op("SPLIT", [d.integers(axis), x.index], [p.index for p in parts], {"num_splits": count})
    d.log.append(f"SPLIT[{x.index}] {axis} {count} -> {[p.index for p in parts]}")
    d.tensors += parts


def pack(d: Drawn) -> None:
    x = d.one_of(1, 3)
    like = [y for y in d.tensors if y.shape == x.shape and y.grid == x.grid]
    parts = [x, *(d.random.choice(like) for _ in range(d.random.randint(0, 2)))]
    axis = d.random.randint(0, len(x.shape))
    value, error = np.stack([p.value for p in parts], axis), np.stack([p.error for p in parts], axis)
    if value.size <= LARGEST:
        d.op("PACK", parts, value, error, x.grid, rounds=False, values_count=len(parts), axis=axis)


def requantize(d: Drawn) -> None:
    x = d.one_of()
    types = (
        ("int8", "int16") if x.grid.dtype == "int16" else ("int8", "uint8") if x.grid.dtype == "uint8" else ALL_TYPES
    )
    d.requantized(x, d.random.choice(types))


def squeeze_and_excitation(d: Drawn) -> None:
    x = d.image(INTEGERS_OF_8_BITS)
    dtype, depth = x.grid.dtype, x.shape[3]
    mean, error = x.value.mean((1, 2), keepdims=True), x.error.mean((1, 2), keepdims=True)
    y = d.op("MEAN", [x, d.integers([1, 2])], mean, error, dtype, keep_dims=True)
    plain: dict[str, object] = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    for out, activation in ((max(1, depth // 2), "RELU"), (depth, "NONE")):
        weights, reals, bias, biases = d.weights(y, (out, 1, 1, y.shape[3]), 0, y.shape[3])
        value = windows.conv_2d(y.value, reals, biases, Window((1, 1)))
        error = windows.conv_2d(y.error, np.abs(reals), np.zeros(out), Window((1, 1)))
        y = d.op("CONV_2D", [y, weights, bias], value, error, dtype, activation=activation, **plain)
    gate = d.op("LOGISTIC", [y], logistic(y.value), 0.25 * y.error, Grid(dtype, *FIXED["LOGISTIC"][dtype]))
    value = x.value * gate.value
    error = np.abs(x.value) * gate.error + gate.value * x.error + x.error * gate.error
    d.op("MUL", [x, gate], value, error, dtype, activation="NONE")


def residual(d: Drawn) -> None:
    """Convolutions beside a shortcut."""
    x = d.image()
    depth = x.shape[3]
    y = x
    for activation in d.random.choice((("NONE",), ("RELU6", "NONE"))):
        size = d.random.choice((1, 3))
        window = Window((size, size), padding="SAME")
        weights, reals, bias, biases = d.weights(y, (depth, size, size, depth), 0, depth * size * size)
        value = windows.conv_2d(y.value, reals, biases, window)
        error = windows.conv_2d(y.error, np.abs(reals), np.zeros(depth), window)
        y = d.op(
            "CONV_2D", [y, weights, bias], value, error, x.grid.dtype,
            activation=activation, padding="SAME", stride_h=1, stride_w=1,
        )  # fmt: skip
    d.op("ADD", [x, y], x.value + y.value, x.error + y.error, x.grid.dtype, activation=d.activation())


def float_part(d: Drawn) -> None:
    x = d.one_of(1, 4)
    y = d.op("DEQUANTIZE", [x], x.value, x.error, "float32")
    for _ in range(d.random.randint(0, 2)):
        if d.chance(0.5):
            y = d.op("TANH", [y], np.tanh(y.value), y.error, "float32")
        else:
            constant = np.asarray(d.rng.standard_normal(y.shape[-1:]), np.float32)
            addend = d.builder.constant(constant)
            y = d.op("ADD", [y, addend], y.value + constant, y.error, "float32", activation="NONE")
    d.op("QUANTIZE", [y], y.value, y.error, d.random.choice(ALL_TYPES))


STEPS: tuple[Callable[[Drawn], None], ...] = (
    *[convolution, fully_connected] * 4, *[binary, depthwise, residual] * 2, extremum, unary, soft_max,
    transpose_convolution, matmul, pool, reduction, resize, concatenation, pad, reshape, transpose, slice_, split,
    pack, requantize, squeeze_and_excitation, float_part,
)  # fmt: skip


PRODUCTS = (convolution, convolution, fully_connected, residual, squeeze_and_excitation)


def quantized_network(random: Random) -> Case:
    rng = np.random.default_rng(random.randrange(1 << 16))
    d = Drawn(random, rng, ModelBuilder())
    inputs = [_input(d) for _ in range(random.choice((1, 1, 1, 2)))]
    for k in range(random.choice((1, 1, 2, 2, 3, 4, 5, 6, 8))):
        random.choice(PRODUCTS if k == 0 and d.chance(0.6) else STEPS)(d)
    quantized = [x for x in d.tensors if x.grid.dtype != "float32"]
    last = quantized[-1]
    chosen = {x.index: x for x in (last, *random.sample(quantized, min(random.randint(0, 3), len(quantized))))}
    outputs, expected, bounds = [], [], []
    for x in chosen.values():
        if d.chance(0.5):
            outputs.append(d.builder.tensor(x.shape))
            d.builder.op("DEQUANTIZE", [x.index], outputs[-1:])
            expected.append(x.value)
            bounds.append(1.001 * x.error + 1e-6 * np.abs(x.value).max())
        else:
            outputs.append(x.index)
            expected.append((np.rint(x.value / x.grid.scale) + x.grid.zero).astype(x.grid.dtype))
            bounds.append(np.floor(1.001 * x.error / x.grid.scale))
    model = d.builder.finish(outputs)
    return Case(model, inputs, expected, Tolerance(), "; ".join(d.log), bounds=bounds)


def _input(d: Drawn) -> NDArray[Any]:
    """An input of floats before a QUANTIZE, or of integers."""
    dtype = d.random.choice(("int8", "int8", "int8", "uint8", "int16"))
    channels = d.random.choice((1, 2, 3, 4, 5, 7, 8, 12, 16, 20, 33))
    shape = tuple(d.random.choice((1, 2, 3, 4, 5, 7, 8)) for _ in range(d.random.choice((0, 1, 2, 3, 3, 3))))
    shape = (d.random.choice((1, 1, 1, 2, 3)), *shape[1:], channels) if shape else (channels,)
    value = d.rng.standard_normal(shape) + d.random.choice((0.0, 0.0, 1.0))
    given: NDArray[Any] = value.astype(np.float32)
    if d.chance(0.5):
        index = d.builder.input(shape)
        d.op("QUANTIZE", [index], given.astype(np.float64), np.zeros(shape), dtype)
        return given
    grid = d.grid(dtype, value)
    given = grid.integers(value).astype(dtype)
    index = d.builder.input(shape, dtype, quantization=grid.quantization)
    d.log.append(f"input {index} {shape} {grid}")
    d.tensors.append(Quantized(index, grid, grid.rounded(value), np.zeros(shape)))
    return given
