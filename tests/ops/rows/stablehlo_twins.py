"""Rows of StableHLO's operators, of which LiteRT's CPU has some."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.case import Net, Row, Tensor
from tests.ops.strategies import BOOL, shapes
from tests.ops.tolerance import EXACT

SHAPE = shapes(max_rank=4)


def cube_root(net: Net) -> Tensor:
    x = net.input(net.normal(net.draw(SHAPE)))
    return net.op("STABLEHLO_CBRT", [x], np.cbrt(x.value))


def remainder(net: Net) -> Tensor:
    """The remainder of multiples of an eighth, which is exact, and of integers."""
    shape, dtype = net.draw(SHAPE), net.draw(st.sampled_from(("float32", "int32", "int16")))
    scale = 0.125 if dtype == "float32" else 1
    x, y = (net.rng.integers(low, 100, shape) for low in (-100, 1))
    values = [(scale * v).astype(dtype) for v in (x, y * net.rng.choice((-1, 1), shape))]
    inputs = [net.input(v) for v in values]
    return net.op("STABLEHLO_REMAINDER", inputs, np.fmod(*(t.value for t in inputs)))


JOINS: dict[str, Callable[..., NDArray[Any]]] = {
    "ADD": np.add,
    "MULTIPLY": np.multiply,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "AND": np.logical_and,
}


def joined(net: Net, name: str) -> Tensor:
    """A reduction of numbers, or of booleans."""
    dtype = "bool" if name == "AND" else net.draw(st.sampled_from(("float32", "int32")))
    shape = net.draw(SHAPE)
    x, y = (net.input(net.rng.integers(0 if dtype == "bool" else -9, 2, shape).astype(dtype)) for _ in range(2))
    return net.op(f"STABLEHLO_{name}", [x, y], JOINS[name](x.value, y.value))


def shift_left(net: Net) -> Tensor:
    """Bits that fall out at the top are lost."""
    shape, dtype = net.draw(SHAPE), net.draw(st.sampled_from(("int32", "int16", "int8")))
    limits = np.iinfo(dtype)
    x = net.input(net.rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))
    y = net.input(net.rng.integers(0, limits.bits, shape).astype(dtype))
    return net.op("STABLEHLO_SHIFT_LEFT", [x, y], np.left_shift(x.value, y.value))


def clamp(net: Net) -> Tensor:
    """Limits are scalars or of the input's shape, and constants or not."""
    shape, dtype = net.draw(SHAPE), net.draw(st.sampled_from(("float32", "int32")))
    x = net.input(net.rng.integers(-50, 50, shape).astype(dtype))
    least, greatest = (
        (net.constant if net.draw(BOOL) else net.input)(
            net.rng.integers(*limits, shape if net.draw(BOOL) else ()).astype(dtype)
        )
        for limits in ((-40, 0), (0, 40))
    )
    return net.op("STABLEHLO_CLAMP", [least, x, greatest], np.clip(x.value, least.value, greatest.value))


def broadcast_in_dim(net: Net) -> Tensor:
    """Axes keep their order or not; each is repeated or as long as the result's."""
    shape = net.draw(SHAPE)
    count = net.draw(st.integers(0, len(shape)))
    axes = [int(a) for a in net.rng.permutation(len(shape))[:count]]
    x = net.input(net.normal(tuple(1 if net.draw(BOOL) else shape[a] for a in axes)))
    order = np.argsort(axes)
    placed = np.transpose(x.value, order).reshape(
        [x.value.shape[axes.index(a)] if a in axes else 1 for a in range(len(shape))]
    )
    value = np.broadcast_to(placed, shape)
    return net.op("STABLEHLO_BROADCAST_IN_DIM", [x], value, {"broadcast_dimensions": axes})


ROWS = (
    *(Row(f"stablehlo_{name.lower()}", f"STABLEHLO_{name}", partial(joined, name=name), EXACT) for name in JOINS),
    Row("stablehlo_cbrt", "STABLEHLO_CBRT", cube_root, litert=False),
    Row("stablehlo_remainder", "STABLEHLO_REMAINDER", remainder, EXACT, litert=False),
    Row("stablehlo_shift_left", "STABLEHLO_SHIFT_LEFT", shift_left, EXACT),
    Row("stablehlo_clamp", "STABLEHLO_CLAMP", clamp, EXACT, litert=False),
    Row("stablehlo_broadcast_in_dim", "STABLEHLO_BROADCAST_IN_DIM", broadcast_in_dim, EXACT, litert=False),
)
