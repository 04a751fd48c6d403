"""A sampler as a model: the token that :class:`tflgpu.language.sampling.Sampler` chooses, by operators of a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tflgpu.language.sampling import Sampling
from tflgpu.model.writer import ModelBuilder

Shape = tuple[int, ...]

# Names of its inputs and outputs. NEXT and CHOSEN are the same token, TOTAL is the sum of all scores.
SCORES, DRAW, NEXT, CHOSEN, TOTAL = "scores", "draw", "next", "chosen", "total"

# The sums of a row may be off by this part of the last one. A threshold that is less than it by more lies in the row.
_ROUNDING = 2.0**-20

# The likeliest token, before which the sum is 0, is below it.
_SMALL = 1e-30

_ALIGNED = 4  # tokens of a row are a multiple of it


def sampler_model(sampling: Sampling, scores: Shape, token: Shape) -> bytes:
    """Return the .tflite file of a sampler.

    Args:
        sampling: How tokens are chosen. The random number is an input, so the seed does not matter.
        scores: The shape of the scores; the last axis is that of tokens, the others are 1.
        token: The shape of the output ``next``, of one element.

    Returns:
        The bytes of the file.
    """
    net = _Network()
    given = _Tensor(net.builder.input(scores, name=SCORES), scores)
    plain = row = net.reshape(given, (1, scores[-1]))
    if sampling.bias:
        row = net.op("ADD", [row, net.row(_bias(sampling.bias, scores[-1]))], (1, scores[-1]))
    if sampling.temperature == 0:
        chosen = net.op("ARG_MAX", [row, net.integers(1)], (1,), "int32", output_type="INT32")
    else:
        draw = _Tensor(net.builder.input((1, 1), name=DRAW), (1, 1))
        scale = min(1 / sampling.temperature, float(np.finfo(np.float32).max))
        k = sampling.candidates(scores[-1])
        if k is None and (sampling.top_p, sampling.min_p) != (None, None):
            k = scores[-1]
        chosen = _drawn(net, row, draw, scale) if k is None else _drawn_of_largest(net, row, draw, scale, k, sampling)
    total = net.op("SUM", [plain, net.integers([1])], (1,), name=TOTAL)
    outputs = [net.reshape(chosen, token, "int32", NEXT), net.reshape(chosen, (1,), "int32", CHOSEN), total]
    return net.builder.finish([output.index for output in outputs], signature="sample")


@dataclass(frozen=True)
class _Tensor:
    index: int
    shape: Shape


class _Network:
    """Adds operators whose inputs are rows of floats, or indices."""

    def __init__(self) -> None:
        self.builder = ModelBuilder("chooses a token by the scores of all")

    def op(
        self,
        code: str,
        inputs: list[_Tensor],
        shape: Shape,
        dtype: str = "float32",
        name: str | None = None,
        **options: object,
    ) -> _Tensor:
        output = self.builder.tensor(shape, dtype, name=name)
        self.builder.op(code, [each.index for each in inputs], [output], options)
        return _Tensor(output, shape)

    def integers(self, values: ArrayLike) -> _Tensor:
        array = np.asarray(values, np.int32)
        return _Tensor(self.builder.constant(array), array.shape)

    def row(self, values: ArrayLike) -> _Tensor:
        array = np.asarray(values, np.float32).reshape(1, -1)
        return _Tensor(self.builder.constant(array), array.shape)

    def number(self, value: float) -> _Tensor:
        return self.row([value])

    def reshape(self, tensor: _Tensor, shape: Shape, dtype: str = "float32", name: str | None = None) -> _Tensor:
        return self.op("RESHAPE", [tensor, self.integers(shape)], shape, dtype, name)

    def element(self, row: _Tensor, place: int) -> _Tensor:
        begin, size = self.integers([0, place]), self.integers([1, 1])
        return self.op("SLICE", [row, begin, size], (1, 1))

    def gather(self, tensor: _Tensor, index: _Tensor, axis: int, dtype: str = "float32") -> _Tensor:
        shape = (*tensor.shape[:axis], 1, *tensor.shape[axis + 1 :])
        return self.op("GATHER", [tensor, index], shape, dtype, axis=axis)

    def weights(self, scores: _Tensor, largest: _Tensor, scale: float) -> _Tensor:
        """Return what the probabilities of scores are proportional to; at most 1."""
        below = self.op("SUB", [scores, largest], scores.shape)
        scaled = self.op("MUL", [below, self.number(scale)], scores.shape)
        return self.op("EXP", [scaled], scores.shape)

    def sums(self, row: _Tensor) -> _Tensor:
        return self.op("CUMSUM", [row, self.integers(1)], row.shape)

    def kept(self, weights: _Tensor, comparison: str, left: _Tensor, right: _Tensor) -> _Tensor:
        """Return weights, with 0 for those of which the comparison does not hold."""
        holds = self.op(comparison, [left, right], weights.shape, "bool")
        ones = self.op("CAST", [holds], weights.shape, in_data_type="BOOL", out_data_type="FLOAT32")
        return self.op("MUL", [weights, ones], weights.shape)

    def passed(self, sums: _Tensor, threshold: _Tensor) -> _Tensor:
        """How many of the sums the threshold is not below: the index of the first one that is larger."""
        is_passed = self.op("LESS_EQUAL", [sums, threshold], sums.shape, "bool")
        ones = self.op("CAST", [is_passed], sums.shape, "int32", in_data_type="BOOL", out_data_type="INT32")
        return self.op("SUM", [ones, self.integers([1])], (1,), "int32")


def _bias(bias: Mapping[int, float], count: int) -> NDArray[np.float32]:
    values = np.zeros(count, np.float32)
    for token, value in bias.items():
        if token >= count:
            raise ValueError(f"bias has token {token}, and the model knows {count} tokens")
        values[token] = value
    return values


def _drawn_of_largest(net: _Network, row: _Tensor, draw: _Tensor, scale: float, k: int, sampling: Sampling) -> _Tensor:
    """One of the ``k`` tokens with the largest scores, or of the likeliest among them."""
    values, indices = (_Tensor(net.builder.tensor((1, k), dtype), (1, k)) for dtype in ("float32", "int32"))
    net.builder.op("TOPK_V2", [row.index, net.integers(k).index], [values.index, indices.index])
    weights = net.weights(values, net.element(values, 0), scale)
    if sampling.top_p is not None:
        sums = net.sums(weights)
        before = net.op("SUB", [sums, weights], (1, k))
        limit = net.op("MUL", [net.element(sums, k - 1), net.number(sampling.top_p)], (1, 1))
        weights = net.kept(weights, "LESS", before, net.op("MAXIMUM", [limit, net.number(_SMALL)], (1, 1)))
    if sampling.min_p is not None:
        weights = net.kept(weights, "GREATER_EQUAL", weights, net.number(sampling.min_p))
    sums = net.sums(weights)
    threshold = net.op("MUL", [net.element(sums, k - 1), draw], (1, 1))
    return net.gather(net.reshape(indices, (k,), "int32"), net.passed(sums, threshold), 0, "int32")


def _drawn(net: _Network, row: _Tensor, draw: _Tensor, scale: float) -> _Tensor:
    """One of all tokens. They are in rows: a row is found by the sums of rows, then a token of it."""
    count = row.shape[-1]
    length = -(-(isqrt(count - 1) + 1) // _ALIGNED) * _ALIGNED
    rows = -(-count // length)
    largest = net.op("REDUCE_MAX", [row, net.integers([1])], (1, 1), keep_dims=True)
    weights = net.weights(row, largest, scale)
    if rows * length > count:
        weights = net.op("PAD", [weights, net.integers([[0, 0], [0, rows * length - count]])], (1, rows * length))
    weights = net.reshape(weights, (rows, length))
    of_rows = net.reshape(net.op("SUM", [weights, net.integers([1])], (rows,)), (1, rows))
    sums = net.sums(of_rows)
    threshold = net.op("MUL", [net.element(sums, rows - 1), draw], (1, 1))
    place = net.passed(sums, threshold)
    before = net.gather(net.op("SUB", [sums, of_rows], (1, rows)), place, 1)
    sums = net.sums(net.gather(weights, place, 0))
    end = net.op("MUL", [net.element(sums, length - 1), net.number(1 - _ROUNDING)], (1, 1))
    rest = net.op("MINIMUM", [net.op("SUB", [threshold, before], (1, 1)), end], (1, 1))
    first = net.op("MUL", [place, net.integers([length])], (1,), "int32")
    return net.op("ADD", [first, net.passed(sums, rest)], (1,), "int32")
