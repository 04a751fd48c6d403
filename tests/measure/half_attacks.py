"""Models whose answers half precision spoils where the wrong tensors are rounded: a table, an attack a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.models import Builder

Array = NDArray[Any]
Build = Callable[[Builder, int], int]


@dataclass(frozen=True)
class Attack:
    """Operators after an input.

    build: appends them to a tensor, which is a copy of the input that may be stored in half, and returns the result.
    scale, mean: of normal inputs. whole: inputs are integers from 0 to this instead. kept: a reason for which a tensor
    stays in float.
    """

    build: Build
    shape: tuple[int, ...] = (1, 16, 64)
    scale: float = 1.0
    mean: float = 0.0
    whole: int = 0
    kept: str = ""

    def append(self, b: Builder, name: str) -> tuple[int, int]:
        """The result, and that of another layer, for which the copy is stored."""
        if self.whole:
            x = b.input(self.shape, "int32", name=name)
            return self.build(b, x), b.add("ABS", [x], self.shape, "int32")
        x = copied(b, b.input(self.shape, name=name))
        rows = b.add("RESHAPE", [x], (size := int(np.prod(self.shape)) // 16, 16), new_shape=[size, 16])
        return self.build(b, x), b.add("FULLY_CONNECTED", [rows, b.weights(4, 16)], (size, 4))

    def inputs(self, random: np.random.Generator) -> Array:
        if self.whole:
            return random.integers(0, self.whole, self.shape, np.int32, endpoint=True)
        return random.normal(self.mean, self.scale, self.shape).astype(np.float32)


def copied(b: Builder, x: int) -> int:
    """The same tensor in memory of its own: readers of a product with the identity cannot compute it themselves."""
    channels = b.shape(x)[-1]
    flat = b.add("FULLY_CONNECTED", [x, b.constant(np.eye(channels, dtype=np.float32))], b.shape(x), keep_num_dims=True)
    return flat


def joined(attacks: Mapping[str, Attack]) -> bytes:
    """A model of all of them. Inputs have their names; the first outputs are theirs."""
    builder = Builder()
    results, others = zip(*(attack.append(builder, name) for name, attack in attacks.items()), strict=True)
    return builder.finish([*results, *others])


def number(b: Builder, value: float) -> int:
    return b.constant(np.array(value, np.float32))


def rows(b: Builder, x: int) -> tuple[int, ...]:
    return (*b.shape(x)[:-1], 1)


def mean(b: Builder, x: int, code: str = "MEAN") -> int:
    return b.add(code, [x, b.ints([-1])], rows(b, x), keep_dims=True)


def mean_by_sum(b: Builder, x: int) -> int:
    return b.add("MUL", [mean(b, x, "SUM"), number(b, 1 / b.shape(x)[-1])])


def mean_by_division(b: Builder, x: int) -> int:
    return b.add("DIV", [mean(b, x, "SUM"), number(b, b.shape(x)[-1])])


def square(b: Builder, x: int) -> int:
    return b.add("SQUARE", [x])


def power(b: Builder, x: int) -> int:
    return b.add("POW", [x, number(b, 2)])


def product(b: Builder, x: int) -> int:
    return b.add("MUL", [x, x])


def absolute(b: Builder, x: int) -> int:
    y = b.add("ABS", [x])
    return b.add("MUL", [y, y])


def rsqrt(b: Builder, x: int) -> int:
    return b.add("RSQRT", [x])


def inverse_power(b: Builder, x: int) -> int:
    return b.add("POW", [x, number(b, -0.5)])


def inverse_root(b: Builder, x: int) -> int:
    return b.add("DIV", [number(b, 1), b.add("SQRT", [x])], b.shape(x))


def root_by_power(b: Builder, x: int) -> int:
    return b.add("DIV", [number(b, 1), b.add("POW", [x, number(b, 0.5)])], b.shape(x))


Step = Callable[[Builder, int], int]


def rms_norm(squares: Step, average: Step, inverse: Step, gamma: str = "after") -> Build:
    """x over the root of its mean square, with a factor for each channel."""

    def build(b: Builder, x: int) -> int:
        weights = b.weights(b.shape(x)[-1])
        scale = inverse(b, b.add("ADD", [average(b, squares(b, x)), number(b, 1e-6)]))
        if gamma == "before":
            x = b.add("MUL", [x, weights])
        y = b.add("MUL", [x, scale])
        return b.add("MUL", [y, weights]) if gamma == "after" else y

    return build


def rms_norm_by_division(b: Builder, x: int) -> int:
    root = b.add("SQRT", [b.add("ADD", [mean_by_sum(b, square(b, x)), number(b, 1e-6)])])
    return b.add("DIV", [x, root])


def layer_norm(squares: Step, average: Step, inverse: Step) -> Build:
    def build(b: Builder, x: int) -> int:
        centered = b.add("SUB", [x, average(b, x)])
        scale = inverse(b, b.add("ADD", [average(b, squares(b, centered)), number(b, 1e-5)]))
        y = b.add("MUL", [b.add("MUL", [centered, scale]), b.weights(b.shape(x)[-1])])
        return b.add("ADD", [y, b.weights(b.shape(x)[-1])])

    return build


def layer_norm_of_moments(b: Builder, x: int) -> int:
    """A layer norm with the variance as E[x^2] - E[x]^2."""
    m = mean(b, x)
    variance = b.add("SUB", [mean(b, product(b, x)), product(b, m)])
    return b.add("MUL", [b.add("SUB", [x, m]), rsqrt(b, b.add("ADD", [variance, number(b, 1e-5)]))])


def group_norm(squares: Step, axes: Sequence[int], grouped: tuple[int, ...], reduced: tuple[int, ...]) -> Build:
    def build(b: Builder, x: int) -> int:
        y = b.add("RESHAPE", [x], grouped, new_shape=list(grouped))

        def average(z: int) -> int:
            return b.add("MEAN", [z, b.ints(axes)], reduced, keep_dims=True)

        centered = b.add("SUB", [y, average(y)])
        scale = rsqrt(b, b.add("ADD", [average(squares(b, centered)), number(b, 1e-5)]))
        z = b.add("RESHAPE", [b.add("MUL", [centered, scale])], b.shape(x), new_shape=list(b.shape(x)))
        return b.add("MUL", [z, b.weights(b.shape(x)[-1])])

    return build


def mean_by_layer(b: Builder, x: int) -> int:
    """A layer with equal weights."""
    c = b.shape(x)[-1]
    weights = b.constant(np.full((1, c), 1 / c, np.float32))
    return b.add("FULLY_CONNECTED", [x, weights], rows(b, x), keep_num_dims=True)


def moments(average: Step) -> Build:
    """The variance of 49 numbers as E[x^2] - E[x]^2."""

    def build(b: Builder, x: int) -> int:
        window = b.add("SLICE", [x, b.ints([0, 0, 0]), b.ints([1, 16, 49])], (1, 16, 49))
        return b.add("SUB", [average(b, square(b, window)), square(b, average(b, window))])

    return build


def moments_of_columns(b: Builder, x: int) -> int:
    """The variance of each column, with a constant matrix on the left."""
    ones = b.constant(np.full((1, 1, 16), 1 / 16, np.float32))
    first, second = (b.add("BATCH_MATMUL", [ones, y], (1, 1, 64)) for y in (x, square(b, x)))
    return b.add("SUB", [second, square(b, first)])


def deviations_by_layer(b: Builder, x: int) -> int:
    """E[x (x - E[x])]."""
    deviations = b.add("SUB", [x, mean_by_layer(b, x)])
    return mean_by_layer(b, b.add("MUL", [x, deviations]))


def moments_of_image(b: Builder, x: int) -> int:
    """The variance of each channel as E[x^2] - E[x]^2."""
    shape = (1, 1, 1, b.shape(x)[-1])

    def average(y: int) -> int:
        return b.add("MEAN", [y, b.ints([1, 2])], shape, keep_dims=True)

    return b.add("SUB", [average(square(b, x)), square(b, average(x))])


def normalized_by_length(b: Builder, x: int) -> int:
    least = b.add("MAXIMUM", [mean(b, square(b, x), "SUM"), number(b, 1e-12)])
    return b.add("MUL", [x, rsqrt(b, least)])


def squared_distance(b: Builder, x: int) -> int:
    return mean(b, b.add("SQUARED_DIFFERENCE", [x, b.weights(b.shape(x)[-1])]))


def squared(b: Builder, x: int) -> int:
    y = b.add(
        "FULLY_CONNECTED", [square(b, x), b.weights(8, b.shape(x)[-1])], (*b.shape(x)[:-1], 8), keep_num_dims=True
    )
    return b.add("MUL", [y, number(b, 1e-4)])


def fraction(b: Builder, x: int) -> int:
    """The place between two samples."""
    return b.add("SUB", [x, b.add("FLOOR", [x])])


def sampled(width: int) -> Build:
    """A row of pixels at places up to its width, as warps sample it: an index, and a weight for the next one."""

    def build(b: Builder, x: int) -> int:
        places = b.add("MUL", [b.add("LOGISTIC", [x]), number(b, width - 2.0)])
        places = b.add("RESHAPE", [places], (int(np.prod(b.shape(x))),), new_shape=[-1])
        low = b.add("FLOOR", [places])
        index = b.add("CAST", [low], b.shape(low), "int32")
        following = b.add("ADD", [index, b.ints(1)], b.shape(low), "int32")
        weight = b.add("SUB", [places, low])
        row = b.weights(width)
        first, second = (b.add("GATHER", [row, i], b.shape(low), axis=0) for i in (index, following))
        return b.add("ADD", [first, b.add("MUL", [b.add("SUB", [second, first]), weight])])

    return build


def step(code: str) -> Build:
    """An integer of numbers up to some hundreds."""

    def build(b: Builder, x: int) -> int:
        y = b.add("MUL", [x, number(b, 0.37)])
        y = b.add("RESHAPE", [y], (16, 64), new_shape=[16, 64])
        z = b.add("FLOOR_MOD", [y, number(b, 7.3)]) if code == "FLOOR_MOD" else b.add(code, [y])
        return b.add("SUB", [y, z]) if code in ("ROUND", "CEIL") else z

    return build


def wave(code: str) -> Build:
    def build(b: Builder, x: int) -> int:
        return b.add(code, [x])

    return build


def masked(b: Builder, x: int) -> int:
    """The elements above a threshold."""
    above = b.add("GREATER", [x, number(b, 100.3)], b.shape(x), "bool")
    return b.add("SELECT_V2", [above, number(b, 1), number(b, 0)], b.shape(x))


def logits(b: Builder, x: int) -> int:
    """Small probabilities."""
    moved = b.add("TRANSPOSE", [b.add("ADD", [x, number(b, -30)]), b.ints([0, 2, 1])], (1, 64, 16))
    return b.add("LOGISTIC", [moved])


def exponential(b: Builder, x: int) -> int:
    return mean(b, b.add("EXP", [x]))


def logarithm(b: Builder, x: int) -> int:
    """The logarithm of powers of a quiet signal."""
    return b.add("LOG", [b.add("ADD", [b.add("MUL", [square(b, x), number(b, 1e-7)]), number(b, 1e-10)])])


def softplus(b: Builder, x: int) -> int:
    return b.add("LOG", [b.add("ADD", [b.add("EXP", [x]), number(b, 1)])])


IMAGE = (1, 24, 24, 16)
GROUPED = (1, 24, 24, 4, 4)
MOVED = (1, 24 * 24, 16)


def offset(b: Builder, x: int) -> int:
    """Numbers that are moved far away and back."""
    far = b.add("ADD", [x, number(b, 1000)])
    moved = b.add("TRANSPOSE", [far, b.ints([0, 2, 1])], (1, 64, 16))
    return b.add("SUB", [moved, number(b, 1000)])


def stretched(b: Builder, x: int) -> int:
    """Between the least number of a row and the greatest one."""
    least, greatest = mean(b, x, "REDUCE_MIN"), mean(b, x, "REDUCE_MAX")
    return b.add("DIV", [b.add("SUB", [x, least]), b.add("SUB", [greatest, least])], b.shape(x))


def similarity(b: Builder, x: int) -> int:
    """The variance of windows, beside their means."""
    image = b.add("RESHAPE", [x], (1, 32, 32, 1), new_shape=[1, 32, 32, 1])

    def blurred(y: int) -> int:
        window = {"filter_width": 5, "filter_height": 5, "stride_w": 1, "stride_h": 1, "padding": "VALID"}
        return b.add("AVERAGE_POOL_2D", [y], (1, 28, 28, 1), **window)

    average = blurred(image)
    variance = b.add("SUB", [blurred(product(b, image)), product(b, average)])
    brightness = b.add("DIV", [average, b.add("ADD", [product(b, average), number(b, 1)])])
    return b.add("CONCATENATION", [variance, brightness], (1, 28, 28, 2), axis=3)


def structural_similarity(b: Builder, x: int) -> int:
    """SSIM of an image and its transpose, by a Gaussian window as a depthwise convolution."""
    line = np.exp(-0.35 * np.square(np.arange(5) - 2.0))
    window = b.constant((np.outer(line, line) / line.sum() ** 2).astype(np.float32)[None, :, :, None])
    options = {"padding": "VALID", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}

    def blurred(y: int) -> int:
        return b.add("DEPTHWISE_CONV_2D", [y, window, b.constant(np.zeros(1, np.float32))], (1, 28, 28, 1), **options)

    first = b.add("RESHAPE", [x], (1, 32, 32, 1), new_shape=[1, 32, 32, 1])
    second = b.add("TRANSPOSE", [first, b.ints([0, 2, 1, 3])], (1, 32, 32, 1))
    averages = blurred(first), blurred(second)
    variances = [
        b.add("SUB", [blurred(square(b, y)), square(b, average)])
        for y, average in zip((first, second), averages, strict=True)
    ]
    covariance = b.add("SUB", [blurred(b.add("MUL", [first, second])), b.add("MUL", list(averages))])
    return b.add("DIV", [covariance, b.add("ADD", [b.add("ADD", variances), number(b, 0.09)])])


def covariance(b: Builder, x: int) -> int:
    """Between rows, as means of products less products of means."""
    average = mean(b, x)
    products = b.add("MUL", [b.add("BATCH_MATMUL", [x, x], (1, 16, 16), adj_y=True), number(b, 1 / 64)])
    return b.add("SUB", [products, b.add("BATCH_MATMUL", [average, average], (1, 16, 16), adj_y=True)])


def histogram(b: Builder, x: int) -> int:
    """Sums of rows that have the same place."""
    values = b.add("RESHAPE", [b.add("ABS", [x])], (64, 16), new_shape=[64, 16])
    sums = b.add("SCATTER_ND", [b.ints(np.arange(64)[:, None] // 32), values, b.ints([2, 16])], (2, 16))
    moved = b.add("TRANSPOSE", [sums, b.ints([1, 0])], (16, 2))
    return b.add("FULLY_CONNECTED", [moved, b.weights(3, 2, scale=1e-4)], (16, 3))


def floats(b: Builder, x: int) -> int:
    return b.add("CAST", [x], b.shape(x))


def elapsed(b: Builder, x: int) -> int:
    """Since the first of some times."""
    times = floats(b, x)
    return b.add("SUB", [times, b.add("REDUCE_MIN", [times, b.ints([-1])], (1, 1), keep_dims=True)])


def distances(b: Builder, x: int) -> int:
    """Between positions."""
    places = floats(b, x)
    column = b.add("RESHAPE", [places], (64, 1), new_shape=[64, 1])
    return b.add("SUB", [column, places], (64, 64))


def rotary(b: Builder, x: int) -> int:
    """Waves of several frequencies at positions."""
    column = b.add("RESHAPE", [floats(b, x)], (64, 1), new_shape=[64, 1])
    angles = b.add("MUL", [column, b.constant((1e4 ** -(np.arange(8) / 8)).astype(np.float32)[None])], (64, 8))
    return b.add("CONCATENATION", [b.add("SIN", [angles]), b.add("COS", [angles])], (64, 16), axis=1)


def expected_square(b: Builder, x: int) -> int:
    """The mean of squared places up to 512: half cannot hold these weights."""
    squares = b.constant(np.arange(512 - 64, 512, dtype=np.float32)[None] ** 2)
    return b.add("FULLY_CONNECTED", [b.add("SOFTMAX", [x], beta=1.0), squares], rows(b, x), keep_num_dims=True)


def little_weights(b: Builder, x: int) -> int:
    y = b.add("FULLY_CONNECTED", [x, b.weights(8, 64, scale=1e-7)], (1, 16, 8), keep_num_dims=True)
    return b.add("MUL", [b.add("ABS", [y]), number(b, 1e7)])


def little_then_large_weights(b: Builder, x: int) -> int:
    for channels, depth, scale in ((8, 64, 1e-8), (8, 8, 1e8)):
        weights = b.weights(channels, depth, scale=scale)
        x = b.add("FULLY_CONNECTED", [x, weights], (1, 16, channels), keep_num_dims=True)
    return x


def little_sums(b: Builder, x: int) -> int:
    """The sum of two products with little weights, made large again."""
    first, second = (
        b.add("FULLY_CONNECTED", [x, b.weights(64, 64, scale=1e-7)], b.shape(x), keep_num_dims=True) for _ in range(2)
    )
    return b.add("MUL", [b.add("ADD", [first, second]), number(b, 1e7)])


def doubled_and_halved(b: Builder, x: int) -> int:
    """Two to the power of 40 paths lead from the input to the output."""
    for _ in range(40):
        x = b.add("MUL", [b.add("ADD", [x, x]), number(b, 0.5)])
    return x


def windows(b: Builder, x: int) -> int:
    """Sums of neighbours as differences of cumulative sums."""
    sums = b.add("CUMSUM", [b.add("ADD", [x, number(b, 30)]), b.ints(-1)])
    first, last = (b.add("SLICE", [sums, b.ints([0, 0, n]), b.ints([1, 16, 56])], (1, 16, 56)) for n in (0, 8))
    return b.add("SUB", [last, first])


def flat_places(b: Builder, x: int) -> int:
    """A row and a column of an image as one index, in float."""
    row, column = (
        b.add("FLOOR", [b.add("MUL", [b.add("LOGISTIC", [y]), number(b, size)])])
        for y, size in ((x, 89.9), (b.add("NEG", [x]), 159.9))
    )
    index = b.add("CAST", [b.add("ADD", [b.add("MUL", [row, number(b, 160)]), column])], b.shape(x), "int32")
    return b.add("GATHER", [b.weights(90 * 160), index], axis=0)


def peaks(b: Builder, x: int) -> int:
    """The elements that are the greatest of their neighbours."""
    image = b.add("RESHAPE", [x], (1, 32, 32, 1), new_shape=[1, 32, 32, 1])
    window = {"filter_width": 3, "filter_height": 3, "stride_w": 1, "stride_h": 1, "padding": "SAME"}
    greatest = b.add("MAX_POOL_2D", [image], **window)
    is_peak = b.add("EQUAL", [image, greatest], None, "bool")
    return b.add("MUL", [image, b.add("CAST", [is_peak], b.shape(image))])


def capped_scores(b: Builder, x: int) -> int:
    """Attention whose scores are large before a TANH keeps them in bounds."""
    scores = b.add("BATCH_MATMUL", [x, x], (1, 16, 16), adj_y=True)
    capped = b.add("MUL", [b.add("TANH", [b.add("MUL", [scores, number(b, 0.02)])]), number(b, 50)])
    return b.add("BATCH_MATMUL", [b.add("SOFTMAX", [capped], beta=1.0), x], b.shape(x))


def pair(b: Builder, x: int) -> tuple[int, int]:
    """The first rows and the last ones."""
    _, n, c = b.shape(x)
    first, second = (
        b.add("SLICE", [x, b.ints([0, k, 0]), b.ints([1, n // 2, c])], (1, n // 2, c)) for k in (0, n // 2)
    )
    return first, second


def near(b: Builder, x: int, factor: float) -> tuple[int, int]:
    """The first rows, and the same with a little of the last ones."""
    first, second = pair(b, x)
    return first, b.add("ADD", [first, b.add("MUL", [second, number(b, factor)])])


def beside(b: Builder, difference: int, stored: int, factor: float) -> int:
    """A difference, and a multiple of what it is made of, which is stored for that."""
    both = [difference, b.add("MUL", [stored, number(b, factor)])]
    shape = b.shape(difference)
    return b.add("CONCATENATION", both, (*shape[:-1], shape[-1] + b.shape(stored)[-1]), axis=len(shape) - 1)


def turned(b: Builder, x: int) -> int:
    batch, n, c = b.shape(x)
    return b.add("TRANSPOSE", [x, b.ints([0, 2, 1])], (batch, c, n))


def pairwise(b: Builder, x: int) -> int:
    """|a|^2 + |b|^2 - 2ab."""
    first, second = pair(b, x)
    products = b.add("BATCH_MATMUL", [first, second], (1, 8, 8), adj_y=True)
    squares = [mean(b, square(b, y), "SUM") for y in (first, second)]
    sums = b.add("ADD", [squares[0], turned(b, squares[1])], (1, 8, 8))
    twice = b.add("MUL", [turned(b, turned(b, products)), number(b, 2)])
    return beside(b, b.add("SUB", [sums, twice]), products, 1e-3)


def pairwise_by_sum(b: Builder, x: int) -> int:
    """-2ab + |a|^2 + |b|^2, of points in space."""
    points = b.add("RESHAPE", [x], (1, 256, 4), new_shape=[1, 256, 4])
    products = b.add("BATCH_MATMUL", [points, points], (1, 256, 256), adj_y=True)
    squares = mean(b, product(b, points), "SUM")
    less = b.add("ADD", [b.add("MUL", [turned(b, products), number(b, -2)]), squares])
    return beside(b, b.add("ADD", [less, turned(b, squares)]), products, 1e-3)


def codes(b: Builder, x: int) -> int:
    """Squared distances to constant points."""
    points = (10 + b.random.standard_normal((8, 64))).astype(np.float32)
    products = b.add("FULLY_CONNECTED", [x, b.constant(points)], (1, 16, 8), keep_num_dims=True)
    twice = b.add("MUL", [turned(b, products), number(b, 2)])
    sums = b.add("SUB", [turned(b, mean(b, square(b, x), "SUM")), twice], (1, 8, 16))
    return beside(b, b.add("ADD", [sums, b.constant(np.square(points).sum(1)[None, :, None])]), sums, 1e-3)


def quadratic_form(b: Builder, x: int) -> int:
    """Expand (x - c)' S (x - c) for a constant point: x'Sx - 2c'Sx + c'Sc."""
    channels = b.shape(x)[-1]
    root = 0.2 * b.random.standard_normal((channels, channels))
    form, center = (root @ root.T + np.eye(channels)).astype(np.float32), 10 + b.random.standard_normal(channels)
    image = b.add("FULLY_CONNECTED", [x, b.constant(form)], b.shape(x), keep_num_dims=True)
    linear = b.constant((2 * form @ center)[None].astype(np.float32))
    less = b.add("FULLY_CONNECTED", [x, linear], rows(b, x), keep_num_dims=True)
    squares = mean(b, b.add("MUL", [x, image]), "SUM")
    return b.add("ADD", [b.add("SUB", [squares, less]), number(b, center @ form @ center)])


def divergence(spelling: str) -> Build:
    """Sum p (log p - log q), of near distributions."""

    def build(b: Builder, x: int) -> int:
        both = near(b, x, 0.05)
        if spelling == "LOG_SOFTMAX":
            first, second = (b.add("LOG_SOFTMAX", [y]) for y in both)
            return mean(b, b.add("MUL", [b.add("EXP", [first]), b.add("SUB", [first, second])]), "SUM")
        p, q = (b.add("SOFTMAX", [y], beta=1.0) for y in both)
        if spelling == "quotient":
            logs = b.add("LOG", [b.add("DIV", [p, q])])
        else:
            logs = b.add("SUB", [b.add("LOG", [p]), b.add("LOG", [q])])
        return mean(b, b.add("MUL", [p, logs]), "SUM")

    return build


def entropy(b: Builder, x: int) -> int:
    """The entropy of rows, less that of equal probabilities."""
    p = b.add("SOFTMAX", [x], beta=1.0)
    return b.add("ADD", [mean(b, b.add("MUL", [p, b.add("LOG", [p])]), "SUM"), number(b, np.log(64))])


def unit(b: Builder, x: int) -> int:
    return b.add("MUL", [x, rsqrt(b, mean(b, square(b, x), "SUM"))])


def less_than_one(b: Builder, x: int) -> int:
    return b.add("SUB", [number(b, 1), x], b.shape(x))


def cosines(b: Builder, x: int) -> int:
    """One less cosines near it."""
    first, second = (unit(b, y) for y in pair(b, x))
    return less_than_one(b, b.add("BATCH_MATMUL", [first, second], (1, 8, 8), adj_y=True))


def cosines_by_division(b: Builder, x: int) -> int:
    first, second = pair(b, x)
    lengths = [b.add("SQRT", [mean(b, square(b, y), "SUM")]) for y in (first, second)]
    products = b.add("BATCH_MATMUL", [first, second], (1, 8, 8), adj_y=True)
    return less_than_one(b, b.add("DIV", [products, b.add("BATCH_MATMUL", lengths, (1, 8, 8), adj_y=True)]))


def cosines_of_rows(b: Builder, x: int) -> int:
    first, second = (unit(b, y) for y in near(b, x, 0.1))
    return less_than_one(b, mean(b, b.add("MUL", [first, second]), "SUM"))


def small_angles(b: Builder, x: int) -> int:
    waves = turned(b, b.add("COS", [x]))
    return beside(b, less_than_one(b, waves), waves, 1e-3)


def small_charges(b: Builder, x: int) -> int:
    """Charbonnier's loss."""
    roots = turned(b, b.add("SQRT", [b.add("ADD", [square(b, x), number(b, 1)])]))
    return beside(b, b.add("SUB", [roots, number(b, 1)]), roots, 1e-3)


def small_differences(function: Step) -> Build:
    """Take the difference of a function of near numbers, which is no zero at zero."""

    def build(b: Builder, x: int) -> int:
        first, second = (turned(b, function(b, y)) for y in pair(b, x))
        return beside(b, beside(b, b.add("SUB", [first, second]), first, 0.01), second, 0.01)

    return build


def weighted_variance(b: Builder, x: int) -> int:
    """The variance of rows, weighted as attention does."""
    weights = b.add("SOFTMAX", [b.add("MUL", [x, number(b, 0.3)])], beta=1.0)
    average = mean(b, b.add("MUL", [weights, x]), "SUM")
    squares = mean(b, b.add("MUL", [weights, product(b, x)]), "SUM")
    return b.add("SUB", [squares, product(b, average)])


def jensen(b: Builder, x: int) -> int:
    """The logarithm of a mean less the mean of logarithms."""
    return b.add("SUB", [b.add("LOG", [mean(b, x)]), mean(b, b.add("LOG", [x]))])


ATTACKS: Mapping[str, Attack] = {
    "places of pixels": Attack(sampled(240), kept="index"),
    "places of many pixels": Attack(sampled(1920)),
    "fractions": Attack(fraction, scale=60),
    "rounded": Attack(step("ROUND"), scale=300),
    "ceilings": Attack(step("CEIL"), scale=300),
    "remainders": Attack(step("FLOOR_MOD"), scale=300),
    "a threshold": Attack(masked, scale=300),
    "waves": Attack(wave("SIN"), scale=60),
    "other waves": Attack(wave("COS"), scale=300),
    "small probabilities": Attack(logits, kept="cancellation"),
    "exponentials": Attack(exponential, mean=8, scale=2),
    "overflowing exponentials": Attack(exponential, mean=11, scale=1),
    "a softplus": Attack(softplus, scale=10),
    "logarithms": Attack(logarithm),
    "moments": Attack(moments_of_image, IMAGE, mean=30, kept="overflow"),
    "moments of large numbers": Attack(moments_of_image, IMAGE, mean=100, scale=300),
    "a layer norm of moments": Attack(layer_norm_of_moments, mean=10),
    "squares": Attack(squared, scale=400),
    "squared distances": Attack(squared_distance, scale=1000),
    "lengths": Attack(normalized_by_length, scale=1000),
    "lengths of little": Attack(normalized_by_length, scale=1e-3),
    "numbers moved far": Attack(offset, kept="cancellation"),
    "stretched rows": Attack(stretched, mean=300),
    "a similarity": Attack(similarity, mean=30, kept="cancellation"),
    "moments by a layer": Attack(moments(mean_by_layer), mean=30, kept="cancellation"),
    "moments by a matrix": Attack(moments_of_columns, mean=30),
    "deviations by a layer": Attack(deviations_by_layer, mean=30, kept="mean"),
    "a structural similarity": Attack(structural_similarity, mean=30),
    "a covariance": Attack(covariance, mean=30),
    "a histogram": Attack(histogram, scale=5000, kept="overflow"),
    "times": Attack(elapsed, (1, 64), whole=1_000_000),
    "distances of positions": Attack(distances, (1, 64), whole=60_000),
    "rotary angles": Attack(rotary, (1, 64), whole=60_000),
    "expected squares": Attack(expected_square, kept="overflow"),
    "little weights": Attack(little_weights, kept="underflow"),
    "little weights, then large ones": Attack(little_then_large_weights, kept="underflow"),
    "little weights, added up": Attack(little_sums, kept="underflow"),
    "doubled and halved": Attack(doubled_and_halved),
    "sums of windows": Attack(windows),
    "flat places": Attack(flat_places),
    "peaks": Attack(peaks),
    "capped scores": Attack(capped_scores, scale=3),
    "pairwise distances": Attack(pairwise, mean=10, kept="cancellation"),
    "pairwise distances by sums": Attack(pairwise_by_sum, mean=10),
    "distances to codes": Attack(codes, mean=10),
    "a quadratic form": Attack(quadratic_form, mean=10),
    "a divergence": Attack(divergence("logarithms")),
    "a divergence of logits": Attack(divergence("LOG_SOFTMAX")),
    "a divergence of quotients": Attack(divergence("quotient")),
    "an entropy": Attack(entropy, scale=0.1),
    "cosines": Attack(cosines, mean=10),
    "cosines by division": Attack(cosines_by_division, mean=10),
    "cosines of rows": Attack(cosines_of_rows),
    "small angles": Attack(small_angles, scale=0.05),
    "small charges": Attack(small_charges, scale=0.1),
    "small differences of softplus": Attack(small_differences(softplus), scale=0.02),
    "small differences of sigmoids": Attack(small_differences(wave("LOGISTIC")), scale=0.02),
    "weighted variances": Attack(weighted_variance, mean=10),
    "Jensen's gap": Attack(jensen, mean=10),
}

# To be multiplied by any number from 1 to 3,000.
NORMS: Mapping[str, Attack] = {
    **{
        f"RMSNorm {name}": Attack(build)
        for name, build in {
            "by powers": rms_norm(power, mean, inverse_power),
            "by sums": rms_norm(square, mean_by_sum, inverse_root),
            "by quotients": rms_norm(product, mean_by_division, root_by_power),
            "of absolute values": rms_norm(absolute, mean, rsqrt),
            "with its factor first": rms_norm(square, mean, rsqrt, "before"),
            "by division": rms_norm_by_division,
        }.items()
    },
    **{
        name: Attack(build, shape)
        for name, build, shape in (
            ("LayerNorm by powers", layer_norm(power, mean, inverse_power), (1, 16, 64)),
            ("LayerNorm by sums", layer_norm(product, mean_by_sum, inverse_root), (1, 16, 64)),
            ("LayerNorm by quotients", layer_norm(square, mean_by_division, root_by_power), (1, 16, 64)),
            ("LayerNorm of moments", layer_norm_of_moments, (1, 16, 64)),
            ("GroupNorm of images", group_norm(square, [1, 2, 4], GROUPED, (1, 1, 1, 4, 1)), IMAGE),
            ("GroupNorm by powers", group_norm(power, [1, 2, 4], GROUPED, (1, 1, 1, 4, 1)), IMAGE),
            ("GroupNorm by products", group_norm(product, [1, 2, 4], GROUPED, (1, 1, 1, 4, 1)), IMAGE),
            ("GroupNorm of rows", group_norm(product, [2], (1, 4, 2304), (1, 4, 1)), IMAGE),
        )
    },
}
