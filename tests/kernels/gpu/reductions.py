"""Reductions and running sums of few results."""

from __future__ import annotations

import numpy as np

from tests.ops.case import Net, Tensor


def running_sum(net: Net, x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    steps = np.flip(x.value, axis) if reverse else x.value
    value = np.cumsum(steps, axis) - (steps if exclusive else 0)
    value = (np.flip(value, axis) if reverse else value).astype(x.value.dtype)
    return net.op("CUMSUM", [x, net.integers(axis)], value, {"exclusive": exclusive, "reverse": reverse})


def reduced(net: Net, code: str, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    function = {"MEAN": np.mean, "SUM": np.sum, "REDUCE_MAX": np.max, "REDUCE_MIN": np.min}[code]
    value = function(x.value, axes, keepdims=True)
    return net.op(code, [x, net.integers(list(axes))], value, {"keep_dims": True})
