"""Models whose answers half precision spoils where the wrong tensors are rounded: a table, an attack a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.support.models import Builder

Floats = NDArray[np.float32]
Build = Callable[[Builder, int], int]


@dataclass(frozen=True)
class Attack:
    """A model of one input.

    build: appends operators to a tensor, which is a copy of the input that may be stored in half, and returns the
    result. scale, mean: of normal inputs.
    """

    build: Build
    shape: tuple[int, ...] = (1, 16, 64)
    scale: float = 1.0
    mean: float = 0.0

    def model(self) -> bytes:
        builder = Builder()
        x = builder.input(self.shape, name="x")
        return builder.finish([self.build(builder, _copy(builder, x))])

    def inputs(self, seed: int = 0) -> Floats:
        values = np.random.default_rng(seed).normal(self.mean, self.scale, self.shape)
        return values.astype(np.float32)


def _copy(b: Builder, x: int) -> int:
    """The same tensor in memory of its own: readers of a product with the identity cannot compute it themselves."""
    channels = b.shape(x)[-1]
    flat = b.add("FULLY_CONNECTED", [x, b.constant(np.eye(channels, dtype=np.float32))], b.shape(x), keep_num_dims=True)
    return flat


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
    """With the variance as E[x^2] - E[x]^2."""
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
    """What is above a threshold."""
    above = b.add("GREATER", [x, number(b, 100.3)], b.shape(x), "bool")
    return b.add("SELECT_V2", [above, number(b, 1), number(b, 0)], b.shape(x))


def logits(b: Builder, x: int) -> int:
    """Small probabilities."""
    moved = b.add("TRANSPOSE", [b.add("ADD", [x, number(b, -30)]), b.ints([0, 2, 1])], (1, 64, 16))
    return b.add("LOGISTIC", [moved])


def exponential(b: Builder, x: int) -> int:
    return mean(b, b.add("EXP", [x]))


def logarithm(b: Builder, x: int) -> int:
    """Of powers of a quiet signal."""
    return b.add("LOG", [b.add("ADD", [b.add("MUL", [square(b, x), number(b, 1e-7)]), number(b, 1e-10)])])


def softplus(b: Builder, x: int) -> int:
    return b.add("LOG", [b.add("ADD", [b.add("EXP", [x]), number(b, 1)])])


IMAGE = (1, 24, 24, 16)
GROUPED = (1, 24, 24, 4, 4)
MOVED = (1, 24 * 24, 16)

ATTACKS: Mapping[str, Attack] = {
    "places of pixels": Attack(sampled(240)),
    "places of many pixels": Attack(sampled(1920)),
    "fractions": Attack(fraction, scale=60),
    "rounded": Attack(step("ROUND"), scale=300),
    "ceilings": Attack(step("CEIL"), scale=300),
    "remainders": Attack(step("FLOOR_MOD"), scale=300),
    "a threshold": Attack(masked, scale=300),
    "waves": Attack(wave("SIN"), scale=60),
    "other waves": Attack(wave("COS"), scale=300),
    "small probabilities": Attack(logits),
    "exponentials": Attack(exponential, mean=8, scale=2),
    "overflowing exponentials": Attack(exponential, mean=11, scale=1),
    "a softplus": Attack(softplus, scale=10),
    "logarithms": Attack(logarithm),
    "moments": Attack(moments_of_image, IMAGE, mean=30),
    "moments of large numbers": Attack(moments_of_image, IMAGE, mean=100, scale=300),
    "a layer norm of moments": Attack(layer_norm_of_moments, mean=10),
    "squares": Attack(squared, scale=400),
    "squared distances": Attack(squared_distance, scale=1000),
    "lengths": Attack(normalized_by_length, scale=1000),
    "lengths of little": Attack(normalized_by_length, scale=1e-3),
    **{
        f"RMSNorm {name}, scale {scale}": Attack(build, scale=scale)
        for scale in (1, 3000)
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
        f"{name}, scale {scale}": Attack(build, shape, scale=scale)
        for scale in (1, 3000)
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
