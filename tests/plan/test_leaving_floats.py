"""Floats that leave a model in half precision are the floats that were computed, however large, by whatever way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.ops.reference import resize_bilinear
from tflgpu.model.writer import ModelBuilder

SHAPE = (1, 6, 5, 6)  # not the same bytes in the host's order and on the device
LARGE = 4.5e5  # half precision ends at 65504

Floats = NDArray[Any]


class Model:
    """Tensors of a file, and the values that they have."""

    def __init__(self) -> None:
        self.builder = ModelBuilder()
        self.random = np.random.default_rng(0)
        self.x = self.random.normal(size=SHAPE).astype(np.float32)
        self.input = self.builder.input(SHAPE)

    def sums(self) -> tuple[int, Floats]:
        """Large numbers that a kernel computes, and stores."""
        weights = self.random.normal(size=(6, 1, 1, 6), scale=LARGE).astype(np.float32)
        weights = np.clip(weights, -60000, 60000)
        value = np.float64(self.x) @ weights[:, 0, 0].T.astype(np.float64)
        constants = [self.builder.constant(weights), self.builder.constant(np.zeros(6, np.float32))]
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
        return self.op("CONV_2D", [self.input, *constants], value, **options), value

    def integers(self, *values: int) -> int:
        return self.builder.constant(np.array(values, np.int32))

    def op(self, code: str, inputs: list[int], value: Floats, **options: Any) -> int:
        output = self.builder.tensor(value.shape)
        self.builder.op(code, inputs, [output], options or None)
        return output


Outputs = list[tuple[int, Floats]]


def softmax(m: Model, tensor: int, value: Floats) -> tuple[int, Floats]:
    """A reader beside the model's caller."""
    exponentials = np.exp(value - value.max(-1, keepdims=True))
    result = exponentials / exponentials.sum(-1, keepdims=True)
    return m.op("SOFTMAX", [tensor], result, beta=1.0), result


def read_by_a_kernel(m: Model) -> Outputs:
    tensor, value = m.sums()
    return [(tensor, value), softmax(m, tensor, value)]


def transposed(m: Model) -> Outputs:
    tensor, value = m.sums()
    moved = value.transpose(0, 3, 1, 2)
    return [(m.op("TRANSPOSE", [tensor, m.integers(0, 3, 1, 2)], moved), moved), softmax(m, tensor, value)]


def concatenated(m: Model) -> Outputs:
    (first, a), (second, b) = m.sums(), m.sums()
    value = np.concatenate([a, b], 1)
    return [(m.op("CONCATENATION", [first, second], value, axis=1), value), softmax(m, first, a)]


def reshaped(m: Model) -> Outputs:
    tensor, value = m.sums()
    flat = value.reshape(1, 30, 6)
    return [(m.op("RESHAPE", [tensor, m.integers(1, 30, 6)], flat), flat), softmax(m, tensor, value)]


def sliced(m: Model) -> Outputs:
    tensor, value = m.sums()
    part = value[:, 1:5, :, 2:]
    return [(m.op("SLICE", [tensor, m.integers(0, 1, 0, 2), m.integers(1, 4, 5, 4)], part), part)]


def pooled(m: Model) -> Outputs:
    tensor, value = m.sums()
    greatest = value[:, :, :4].reshape(1, 3, 2, 2, 2, 6).max((2, 4))
    window = {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "VALID"}
    return [(m.op("MAX_POOL_2D", [tensor], greatest, **window), greatest)]


def resized(m: Model) -> Outputs:
    tensor, value = m.sums()
    result = resize_bilinear(value, (12, 10))
    return [(m.op("RESIZE_BILINEAR", [tensor, m.integers(12, 10)], result), result)]


def masked(m: Model) -> Outputs:
    tensor, value = m.sums()
    mask = m.random.choice([0, -1e9], value.shape).astype(np.float32)
    return [(m.op("ADD", [tensor, m.builder.constant(mask)], value + mask), value + mask)]


@pytest.mark.parametrize(
    "make", [read_by_a_kernel, transposed, concatenated, reshaped, sliced, pooled, resized, masked]
)
def test_large_numbers_arrive(make: Callable[[Model], Outputs]) -> None:
    m = Model()
    outputs = make(m)
    model = m.builder.finish([tensor for tensor, _ in outputs])
    options = tflgpu.Options(device="cpu", precision="fp16", cache="off")
    with tflgpu.compile(model, options) as compiled:
        results = compiled.run([m.x]).values()
    (_, expected), got = outputs[0], next(iter(results))
    assert abs(expected).max() > 1e5
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=1e3)
