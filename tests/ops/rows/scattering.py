"""Rows of operators that add up what goes to the same place."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.case import Net, Row, Tensor, largest
from tests.ops.strategies import BOOL, CHANNELS, SMALL

TYPES = st.sampled_from(("float32", "int32", "int64"))


def _numbers(net: Net, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    return (net.normal(shape) if dtype == "float32" else net.rng.integers(-99, 99, shape)).astype(dtype)


def scatter_nd(net: Net) -> Tensor:
    """Some slices go to the same place, and many places get none."""
    shape = (*net.draw(st.lists(SMALL, min_size=1, max_size=3)), net.draw(CHANNELS))
    depth, leading = net.draw(st.integers(1, len(shape))), net.draw(st.lists(SMALL, min_size=1, max_size=2))
    places = net.rng.integers(0, shape[:depth], (*leading, depth)).astype(net.draw(st.sampled_from(("int32", "int64"))))
    indices = (net.constant if net.draw(BOOL) else net.input)(places)
    updates = net.input(_numbers(net, (*leading, *shape[depth:]), net.draw(TYPES)))
    value = np.zeros(shape, updates.value.dtype)
    np.add.at(value, tuple(np.moveaxis(places, -1, 0)), updates.value)
    dtype = "float32" if value.dtype.kind == "f" else value.dtype.name
    wanted = net.constant(np.array(shape, places.dtype))
    if places.dtype != np.int32:
        net.litert_differs = "it takes indices of 32 bits only"
    magnitude = largest(updates.value)
    return net.op("SCATTER_ND", [indices, updates, wanted], value, magnitude=magnitude, dtype=dtype)


def segment_sum(net: Net) -> Tensor:
    count = net.draw(st.sampled_from((5, 1, 12)))
    shape, dtype = (count, *net.draw(st.lists(SMALL, max_size=2))), net.draw(st.sampled_from(("float32", "int32")))
    x = net.input(_numbers(net, shape, dtype))
    ids = np.cumsum(net.rng.integers(0, 2, count)).astype(np.int32)
    ids -= ids[0]
    value = np.zeros((ids[-1] + 1, *x.shape[1:]), x.value.dtype)
    np.add.at(value, ids, x.value)
    return net.op("SEGMENT_SUM", [x, net.constant(ids)], value, magnitude=largest(x.value))


ROWS = (Row("scatter_nd", "SCATTER_ND", scatter_nd), Row("segment_sum", "SEGMENT_SUM", segment_sum))
