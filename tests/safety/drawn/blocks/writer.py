"""A network under construction, computed three times alongside: in double, and with results that are rounded.

The rounded answers tell how well a network is conditioned, which no tolerance can tell: each operator is computed in
double there, too, and only what it gives is rounded to float or to half, as a device stores it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.ops.reference import ACTIVATIONS
from tflgpu.model.writer import ModelBuilder

Array = NDArray[Any]
Shape = tuple[int, ...]
Function = Callable[..., Array]

ABSENT = -1  # index of an optional input that is not given
LARGEST_HALF = float(np.finfo(np.float16).max)


def _in_float(x: Array) -> Array:
    return x.astype(np.float32).astype(np.float64)


def _in_half(x: Array) -> Array:
    """Numbers past the range of half are stored as its largest."""
    return np.clip(x, -LARGEST_HALF, LARGEST_HALF).astype(np.float16).astype(np.float64)


# The rounding of a stored result, by precision.
ROUNDED: Mapping[str, Callable[[Array], Array]] = {"double": np.positive, "fp32": _in_float, "fp16": _in_half}


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the model that is being written, and its value in each precision."""

    index: int
    values: Mapping[str, Array]

    @property
    def exact(self) -> Array:
        return self.values["double"]

    @property
    def shape(self) -> Shape:
        return self.exact.shape


@dataclass(frozen=True)
class Drawn:
    """A network, its inputs, and its outputs by precision. log: a line for each operator."""

    model: bytes
    inputs: list[Array]
    expected: Mapping[str, list[Array]]
    log: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.log)


class Writer:
    """Appends operators to a model.

    random: decides everything but numbers, so that hypothesis can shrink it.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rng = np.random.default_rng(random.randrange(1 << 16))
        self._builder = ModelBuilder()
        self._inputs: list[Array] = []
        self._log: list[str] = []

    def one_of(self, choices: Sequence[Any]) -> Any:
        return choices[self.random.randrange(len(choices))]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def normal(self, *shape: int, scale: float = 1.0) -> Array:
        return (scale * self.rng.standard_normal(shape)).astype(np.float32)

    def factors(self, *shape: int) -> Array:
        """Numbers about 1."""
        return self.rng.uniform(0.5, 1.5, shape).astype(np.float32)

    def input(self, value: Array) -> Value:
        """A model input that is fed ``value``."""
        self._inputs.append(value)
        return _value(self._builder.input(value.shape, value.dtype.name), [value] * len(ROUNDED))

    def constant(self, value: Array | float) -> Value:
        """A tensor that the model holds; one number is a float32."""
        array = np.asarray(value, np.float32) if isinstance(value, float) else np.asarray(value)
        return _value(self._builder.constant(array), [array] * len(ROUNDED))

    def ints(self, values: object) -> Value:
        """A constant of int32: axes, sizes, paddings."""
        return self.constant(np.array(values, np.int32))

    def op(
        self,
        code: str,
        inputs: Sequence[Value | None],
        function: Function,
        *,
        activation: str | None = None,
        version: int = 1,
        **options: object,
    ) -> Value:
        """Append an operator with one output.

        function: of the values of the inputs that are there, to the operator's result before its activation.
        activation: the fused activation; None if the operator has no such option.
        """
        if activation is not None:
            options["fused_activation_function"] = activation
        complete = ACTIVATIONS[activation or "NONE"]
        return self._append(code, inputs, lambda *x: [complete(function(*x))], options, version)[0]

    def ops(
        self, code: str, inputs: Sequence[Value], function: Callable[..., Sequence[Array]], **options: object
    ) -> list[Value]:
        """Append an operator with several outputs."""
        return self._append(code, inputs, function, options, 1)

    def _append(
        self,
        code: str,
        inputs: Sequence[Value | None],
        function: Callable[..., Sequence[Array]],
        options: Mapping[str, object],
        version: int,
    ) -> list[Value]:
        given = [x for x in inputs if x is not None]
        results = [function(*(x.values[precision] for x in given)) for precision in ROUNDED]
        outputs = []
        for values in zip(*results, strict=True):
            dtype = "float32" if values[0].dtype.kind == "f" else values[0].dtype.name
            outputs.append(_value(self._builder.tensor(values[0].shape, dtype), values))
        indices = [ABSENT if x is None else x.index for x in inputs]
        self._builder.op(code, indices, [x.index for x in outputs], options or None, version=version)
        shapes = [None if x is None else x.shape for x in inputs]
        self._log.append(f"{code}{shapes} {dict(options)} -> {[x.shape for x in outputs]}")
        return outputs

    def finish(self, outputs: Sequence[Value]) -> Drawn:
        model = self._builder.finish([x.index for x in outputs])
        expected = {precision: [x.values[precision] for x in outputs] for precision in ROUNDED}
        return Drawn(model, self._inputs, expected, tuple(self._log))

    # The operators that every part uses.

    def reshape(self, x: Value, *shape: int) -> Value:
        return self.op("RESHAPE", [x, self.ints(shape)], lambda x, _: x.reshape(shape), new_shape=[*shape])

    def transpose(self, x: Value, *order: int) -> Value:
        return self.op("TRANSPOSE", [x, self.ints(order)], lambda x, _: x.transpose(order))

    def slice(self, x: Value, axis: int, begin: int, size: int) -> Value:
        """A range of one axis, by SLICE or by STRIDED_SLICE."""
        axis %= len(x.shape)
        starts = [begin if a == axis else 0 for a in range(len(x.shape))]
        sizes = [size if a == axis else n for a, n in enumerate(x.shape)]
        kept = tuple(slice(b, b + n) for b, n in zip(starts, sizes, strict=True))
        if self.chance(0.6):
            return self.op("SLICE", [x, self.ints(starts), self.ints(sizes)], lambda x, *_: x[kept])
        ends = [b + n for b, n in zip(starts, sizes, strict=True)]
        bounds = map(self.ints, (starts, ends, [1] * len(sizes)))
        return self.op("STRIDED_SLICE", [x, *bounds], lambda x, *_: x[kept])

    def parts(self, x: Value, axis: int, count: int) -> list[Value]:
        """Equal ranges of one axis, by slices or by SPLIT."""
        axis %= len(x.shape)
        size = x.shape[axis] // count
        if self.chance(0.5):
            return [self.slice(x, axis, n * size, size) for n in range(count)]
        return self.ops("SPLIT", [self.ints(axis), x], lambda _, x: np.split(x, count, axis), num_splits=count)

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        axis %= len(parts[0].shape)
        return self.op("CONCATENATION", parts, lambda *x: np.concatenate(x, axis), activation="NONE", axis=axis)

    def add(self, x: Value, y: Value, activation: str = "NONE") -> Value:
        return self.op("ADD", self._either(x, y), np.add, activation=activation)

    def multiply(self, x: Value, y: Value) -> Value:
        return self.op("MUL", self._either(x, y), np.multiply, activation="NONE")

    def subtract(self, x: Value, y: Value) -> Value:
        return self.op("SUB", [x, y], np.subtract, activation="NONE")

    def divide(self, x: Value, y: Value) -> Value:
        return self.op("DIV", [x, y], np.divide, activation="NONE")

    def mean(self, x: Value, *axes: int) -> Value:
        """A mean that keeps the axes, by MEAN alone or by a RESHAPE after it."""
        axes = tuple(axis % len(x.shape) for axis in axes)
        kept = self.chance(0.6)
        y = self.op("MEAN", [x, self.ints(axes)], lambda x, _: x.mean(axes, keepdims=kept), keep_dims=kept)
        return y if kept else self.reshape(y, *(1 if a in axes else n for a, n in enumerate(x.shape)))

    def matmul(self, x: Value, y: Value, *, adjoint_left: bool = False, adjoint_right: bool = False) -> Value:
        def product(x: Array, y: Array) -> Array:
            return np.asarray(
                (np.swapaxes(x, -1, -2) if adjoint_left else x) @ (np.swapaxes(y, -1, -2) if adjoint_right else y)
            )

        return self.op("BATCH_MATMUL", [x, y], product, adj_x=adjoint_left, adj_y=adjoint_right)

    def _either(self, x: Value, y: Value) -> list[Value]:
        return [x, y] if self.chance(0.7) else [y, x]


def _value(index: int, values: Sequence[Array]) -> Value:
    """Floats are rounded, constants and inputs among them."""
    if values[0].dtype.kind != "f":
        return Value(index, dict(zip(ROUNDED, values, strict=True)))
    exact = [x.astype(np.float64) for x in values]
    return Value(index, {p: ROUNDED[p](x) for p, x in zip(ROUNDED, exact, strict=True)})
