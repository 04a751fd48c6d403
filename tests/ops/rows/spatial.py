"""Rows of the operators that reduce, pool, resize or normalise without weights."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tests.ops import reference, windows
from tests.ops.case import Net, Row, Tensor, largest
from tests.ops.strategies import (
    ACTIVATION,
    BOOL,
    CLAMP,
    EXTENT,
    FEATURE_MAP,
    UP_TO_RANK_FOUR,
    Shapes,
    axes,
    feature_map,
    window,
)
from tests.ops.tolerance import EXACT
from tests.ops.windows import Window

_BETAS = st.sampled_from((1.0, 0.5, 2.5))


def average_pool_2d(net: Net) -> Tensor:
    x = feature_map(net)
    return average_pool(net, x, window(net, x.shape))


def average_pool(net: Net, x: Tensor, w: Window) -> Tensor:
    return net.op(
        "AVERAGE_POOL_2D",
        [x],
        windows.average_pool_2d(x.value, w),
        pool_options(w),
        activation=net.draw(ACTIVATION),
        terms=w.kernel[0] * w.kernel[1],
        magnitude=largest(x.value),
    )


def max_pool_2d(net: Net) -> Tensor:
    """Maps around 0, and maps of negative values only, where padding must not win."""
    offset = net.draw(st.sampled_from((0, -10)))
    x = net.input(net.normal(net.draw(FEATURE_MAP)) + np.float32(offset))
    return max_pool(net, x, window(net, x.shape))


def max_pool(net: Net, x: Tensor, w: Window) -> Tensor:
    value = windows.max_pool_2d(x.value, w)
    return net.op("MAX_POOL_2D", [x], value, pool_options(w), activation=net.draw(CLAMP))


def resize_bilinear(net: Net) -> Tensor:
    x = feature_map(net)
    size = net.draw(st.tuples(EXTENT, EXTENT))
    corners, centers = net.draw(st.sampled_from(((False, False), (True, False), (False, True))))
    return net.op(
        "RESIZE_BILINEAR",
        [x, net.integers(size)],
        reference.resize_bilinear(x.value, size, corners, centers),
        {"align_corners": corners, "half_pixel_centers": centers},
        version=3 if centers else 1,
        magnitude=largest(x.value),
    )


def softmax(net: Net, shape: Shapes = UP_TO_RANK_FOUR, betas: st.SearchStrategy[float] = _BETAS) -> Tensor:
    x = net.input(net.normal(net.draw(shape), 2))
    beta = net.draw(betas)
    return net.op("SOFTMAX", [x], reference.softmax(x.value, beta), {"beta": beta}, terms=x.shape[-1])


def mean(net: Net, shape: Shapes = UP_TO_RANK_FOUR) -> Tensor:
    # Around 1: the mean of many numbers around 0 is too small to tell from the mean of fewer of them.
    x = net.input(net.normal(net.draw(shape)) + np.float32(1))
    return mean_over(net, x, axes(net, len(x.shape)))


def mean_over(net: Net, x: Tensor, over: list[int]) -> Tensor:
    keep_dims = net.draw(BOOL)
    scalar = len(over) == 1 and net.draw(BOOL)  # converters write a single axis in either rank
    return net.op(
        "MEAN",
        [x, net.integers(over[0] if scalar else over)],
        x.value.mean(axis=tuple(over), keepdims=keep_dims),
        {"keep_dims": keep_dims},
        terms=int(np.prod([x.shape[axis] for axis in over])),
        magnitude=largest(x.value),
    )


def pool_options(w: Window) -> dict[str, object]:
    return {
        "padding": w.padding,
        "stride_h": w.stride[0],
        "stride_w": w.stride[1],
        "filter_height": w.kernel[0],
        "filter_width": w.kernel[1],
    }


ROWS = (
    Row("average_pool_2d", "AVERAGE_POOL_2D", average_pool_2d),
    Row("max_pool_2d", "MAX_POOL_2D", max_pool_2d, EXACT),
    Row("resize_bilinear", "RESIZE_BILINEAR", resize_bilinear),
    Row("softmax", "SOFTMAX", softmax),
    Row("mean", "MEAN", mean),
)
