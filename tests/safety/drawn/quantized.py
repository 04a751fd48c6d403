"""Random networks whose activations are integers on one grid, between QUANTIZE and DEQUANTIZE.

What LiteRT rounds is known but for one step in each operator, so a bound is known for each tensor: how many steps of
the grid it may be away from the real numbers that the operators are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from random import Random

import numpy as np
from numpy.typing import NDArray

from tests.ops.case import Case
from tests.ops.tolerance import Tolerance
from tests.safety.drawn.drawing import LARGEST, Shape
from tflgpu.model.file_tables import Quantization
from tflgpu.model.writer import ModelBuilder

Reals = NDArray[np.float64]

# Of operators whose version for int8 is not 2.
VERSIONS = {"CONV_2D": 3, "FULLY_CONNECTED": 4, "QUANTIZE": 1, "RESHAPE": 1}


@dataclass(frozen=True)
class Quantized:
    """A tensor, the real numbers that it stands for, and how many steps LiteRT may be away from them."""

    index: int
    value: Reals
    steps: float

    @property
    def shape(self) -> Shape:
        return self.value.shape


@dataclass
class Grid:
    """The one grid of a network, and the model under construction."""

    random: Random
    rng: np.random.Generator
    builder: ModelBuilder
    dtype: str
    scale: float
    zero: int
    tensors: list[Quantized] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def quantization(self) -> Quantization:
        return Quantization([self.scale], [self.zero])

    def rounded(self, reals: Reals) -> Reals:
        """The nearest real numbers of the grid."""
        limits = np.iinfo(self.dtype)
        return np.asarray(
            (np.clip(np.rint(reals / self.scale) + self.zero, limits.min, limits.max) - self.zero) * self.scale
        )

    def op(
        self, code: str, inputs: Iterable[Quantized | int], value: Reals, steps: float, **options: object
    ) -> Quantized:
        inputs = [x if isinstance(x, int) else x.index for x in inputs]
        output = self.builder.tensor(value.shape, self.dtype, quantization=self.quantization)
        self.builder.op(
            code, inputs, [output], options or None, version=VERSIONS.get(code, 2) if self.dtype == "int8" else 1
        )
        self.log.append(f"{code}{inputs} {options} -> {output} {value.shape}")
        result = Quantized(output, self.rounded(value), steps)
        self.tensors.append(result)
        return result

    def integers(self, values: object) -> int:
        return self.builder.constant(np.array(values, np.int32))

    def one_of(self, choices: Iterable[Quantized]) -> Quantized:
        choices = list(choices)
        return choices[max(self.random.randrange(len(choices)), self.random.randrange(len(choices)))]

    def of_rank(self, least: int, most: int) -> Quantized:
        fit = [x for x in self.tensors if least <= len(x.shape) <= most]
        return self.one_of(fit) if fit else self.reshaped(self.one_of(self.tensors), least)

    def reshaped(self, x: Quantized, rank: int) -> Quantized:
        shape = (*[1] * (rank - 1), x.value.size)
        return self.op("RESHAPE", [x, self.integers(shape)], x.value.reshape(shape), x.steps, new_shape=[*shape])


def add(g: Grid) -> None:
    x = g.of_rank(1, 4)
    y = g.one_of(y for y in g.tensors if y.shape == x.shape)
    g.op("ADD", [x, y], x.value + y.value, x.steps + y.steps + 1, fused_activation_function="NONE")


def multiply(g: Grid) -> None:
    x = g.of_rank(1, 4)
    y = g.one_of(y for y in g.tensors if y.shape == x.shape)
    steps = x.steps * np.abs(y.value).max() + y.steps * np.abs(x.value).max() + x.steps * y.steps * g.scale + 1
    g.op("MUL", [x, y], x.value * y.value, steps, fused_activation_function="NONE")


def relu(g: Grid) -> None:
    x = g.one_of(g.tensors)
    g.op("RELU", [x], np.maximum(x.value, 0), x.steps + 1)


def reshape(g: Grid) -> None:
    x = g.one_of(g.tensors)
    size = x.value.size
    first = g.random.choice([n for n in range(1, size + 1) if size % n == 0])
    shape = (first, size // first) if g.random.random() < 0.5 else (1, first, 1, size // first)
    g.op("RESHAPE", [x, g.integers(shape)], x.value.reshape(shape), x.steps, new_shape=[*shape])


def transpose(g: Grid) -> None:
    x = g.of_rank(2, 4)
    order = g.random.sample(range(len(x.shape)), len(x.shape))
    g.op("TRANSPOSE", [x, g.integers(order)], x.value.transpose(order), x.steps)


def slice_(g: Grid) -> None:
    x = g.of_rank(1, 4)
    begin = [g.random.randrange(n) if g.random.random() < 0.4 else 0 for n in x.shape]
    size = [g.random.randint(1, n - b) for n, b in zip(x.shape, begin, strict=True)]
    value = x.value[tuple(slice(b, b + s) for b, s in zip(begin, size, strict=True))]
    g.op("SLICE", [x, g.integers(begin), g.integers(size)], value, x.steps)


def pad(g: Grid) -> None:
    x = g.of_rank(1, 4)
    around = [(g.random.randint(0, 2), g.random.randint(0, 2)) for _ in x.shape]
    if (value := np.pad(x.value, around)).size <= LARGEST:
        g.op("PAD", [x, g.integers(around)], value, x.steps)


def concatenation(g: Grid) -> None:
    x = g.of_rank(1, 4)
    axis = g.random.randrange(len(x.shape))
    y = g.one_of(y for y in g.tensors if y.shape == x.shape)
    value = np.concatenate([x.value, y.value], axis)
    if value.size <= LARGEST:
        g.op("CONCATENATION", [x, y], value, max(x.steps, y.steps), axis=axis)


def fully_connected(g: Grid) -> None:
    x = g.of_rank(2, 2)
    depth, out = x.shape[1], g.random.choice((1, 3, 4, 7, 8))
    integers = g.rng.integers(-127, 128, (out, depth)).astype(np.int8)
    scale = 1.5 / 127 / depth
    weights = g.builder.constant(integers, quantization=Quantization([scale], [0]))
    biases = g.rng.integers(-50, 50, out).astype(np.int32)
    bias = g.builder.constant(biases, quantization=Quantization([scale * g.scale], [0]))
    value = x.value @ (integers * scale).T + biases * (scale * g.scale)
    if value.size <= LARGEST and g.dtype == "int8":
        g.op("FULLY_CONNECTED", [x, weights, bias], value, 1.5 * x.steps + 1, fused_activation_function="NONE")


def convolution(g: Grid) -> None:
    x = g.of_rank(4, 4)
    out, depth = g.random.choice((1, 3, 4, 7, 8)), x.shape[3]
    kernel = tuple(g.random.randint(1, min(3, n)) for n in x.shape[1:3])
    terms = depth * prod(kernel)
    integers = g.rng.integers(-127, 128, (out, *kernel, depth)).astype(np.int8)
    scales = (g.rng.uniform(0.5, 1.5, out) / 127 / terms).astype(np.float32)
    weights = g.builder.constant(integers, quantization=Quantization([float(s) for s in scales], [0] * out))
    biases = g.rng.integers(-50, 50, out).astype(np.int32)
    of_bias = [float(np.float32(s) * np.float32(g.scale)) for s in scales]
    bias = g.builder.constant(biases, quantization=Quantization(of_bias, [0] * out))
    height, width = (n - k + 1 for n, k in zip(x.shape[1:3], kernel, strict=True))
    value = np.zeros((x.shape[0], height, width, out)) + biases * np.array(of_bias)
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            taps = integers[:, row, column] * scales[:, None].astype(np.float64)
            value = value + x.value[:, row : row + height, column : column + width] @ taps.T
    if value.size <= LARGEST and g.dtype == "int8":
        options = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "fused_activation_function": "NONE"}
        g.op("CONV_2D", [x, weights, bias], value, 1.5 * x.steps + 1, **options)


def max_pool(g: Grid) -> None:
    x = g.of_rank(4, 4)
    height, width = (min(2, n) for n in x.shape[1:3])
    rows, columns = x.shape[1] // height, x.shape[2] // width
    cut = x.value[:, : rows * height, : columns * width]
    value = cut.reshape(x.shape[0], rows, height, columns, width, x.shape[3]).max((2, 4))
    options = {
        "padding": "VALID",
        "stride_h": height,
        "stride_w": width,
        "filter_height": height,
        "filter_width": width,
    }
    g.op("MAX_POOL_2D", [x], value, x.steps, **options)


def mean(g: Grid) -> None:
    x = g.of_rank(2, 4)
    axis = g.random.randrange(len(x.shape))
    g.op("MEAN", [x, g.integers([axis])], x.value.mean(axis, keepdims=True), x.steps + 1, keep_dims=True)


STEPS: tuple[Callable[[Grid], None], ...] = (
    add, multiply, relu, reshape, transpose, slice_, pad, concatenation, fully_connected, convolution, max_pool, mean,
)  # fmt: skip


def quantized_network(random: Random) -> Case:
    rng, builder = np.random.default_rng(random.randrange(1 << 16)), ModelBuilder()
    dtype = random.choice(("int8", "int8", "uint8"))
    zero = random.randint(-20, 20) + (128 if dtype == "uint8" else 0)
    grid = Grid(random, rng, builder, dtype, float(np.float32(0.05)), zero)
    shape = tuple(random.choice((1, 2, 3, 4, 5, 7, 8)) for _ in range(random.choice((1, 2, 2, 3, 4, 4))))
    given = np.asarray(rng.standard_normal(shape), np.float32)
    grid.op("QUANTIZE", [builder.input(shape)], given.astype(np.float64), 1.0)
    for _ in range(random.randint(2, 9)):
        random.choice(STEPS)(grid)
    last = grid.tensors[-1]
    chosen = {x.index: x for x in (last, *random.sample(grid.tensors, min(2, len(grid.tensors))))}.values()
    outputs = [builder.tensor(x.shape) for x in chosen]
    for x, output in zip(chosen, outputs, strict=True):
        builder.op("DEQUANTIZE", [x.index], [output], version=2)
    steps = max(x.steps for x in chosen)
    expected = [x.value for x in chosen]
    largest = max(1.0, *(float(np.abs(value).max()) for value in expected))
    # An element may be off by fp32 * (largest + its size).
    return Case(
        builder.finish(outputs),
        [given],
        expected,
        Tolerance(fp32=1.01 * steps * grid.scale / largest, magnitude=largest),
        "; ".join(grid.log),
    )
