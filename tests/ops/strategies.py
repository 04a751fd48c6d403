"""Strategies from which rows draw. Hypothesis shrinks to the first entry of a list: small, but no special case
itself.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Net, Tensor
from tests.ops.windows import Window

BATCH = st.sampled_from((1, 2, 3))
EXTENT = st.sampled_from((5, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 17, 34))  # height, width
CHANNELS = st.sampled_from((5, 1, 2, 3, 4, 6, 7, 8, 9, 12, 15, 16, 17, 24, 32, 33, 40, 66, 130))
SMALL = st.sampled_from((3, 1, 2, 4, 5, 6))  # axes of tensors that may have many of them
PADDING = st.sampled_from(("SAME", "VALID"))
CLAMP = st.sampled_from(("NONE", "RELU6", "RELU", "RELU_N1_TO_1"))  # fused activations that keep a row exact
ACTIVATION = st.sampled_from(("NONE", "RELU6", "RELU", "RELU_N1_TO_1", "TANH"))
BOOL = st.booleans()

Shapes = st.SearchStrategy[tuple[int, ...]]

FEATURE_MAP = st.tuples(BATCH, EXTENT, EXTENT, CHANNELS)


@st.composite
def shapes(draw: st.DrawFn, min_rank: int = 1, max_rank: int = 5) -> tuple[int, ...]:
    """Shapes of any rank; the leading axes are small, so that rank 5 is no larger than a feature map."""
    rank = draw(st.integers(min_rank, max_rank))
    leading = draw(st.tuples(*[SMALL] * (rank - 1)))
    return (*leading, draw(CHANNELS))


UP_TO_RANK_FOUR = shapes(max_rank=4)


@st.composite
def broadcast_shapes(draw: st.DrawFn, min_rank: int = 1, max_rank: int = 5) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast: on any axis either may be 1, and one may lack some or all leading axes."""
    shape = draw(shapes(min_rank, max_rank))
    sides = draw(st.tuples(*[st.sampled_from(("second is 1", "first is 1", "equal"))] * len(shape)))
    first = tuple(1 if side == "first is 1" else size for side, size in zip(sides, shape, strict=True))
    second = tuple(1 if side == "second is 1" else size for side, size in zip(sides, shape, strict=True))
    lacking = draw(st.integers(0, len(shape)))
    pair = (first, second[lacking:])
    return pair[::-1] if draw(BOOL) else pair


def window(net: Net, shape: tuple[int, ...], max_dilation: int = 1) -> Window:
    """A window with at least one position on a [B, H, W, C] ``shape``, drawn apart in height and width."""
    padding = net.draw(PADDING)
    kernel: list[int] = []
    dilation: list[int] = []
    for size in shape[1:3]:
        kernel.append(net.draw(st.integers(1, 5 if padding == "SAME" else min(5, size))))
        fits = max_dilation if padding == "SAME" or kernel[-1] == 1 else (size - 1) // (kernel[-1] - 1)
        dilation.append(net.draw(st.integers(1, min(fits, max_dilation))))
    stride = net.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    return Window((kernel[0], kernel[1]), stride, (dilation[0], dilation[1]), padding)


def feature_map(net: Net) -> Tensor:
    """A runtime [B, H, W, C] input."""
    return net.input(net.normal(net.draw(FEATURE_MAP)))


def axis(net: Net, rank: int) -> int:
    """One axis, counted from the front or (negative) from the back."""
    return net.draw(st.integers(-rank, rank - 1))


def axes(net: Net, rank: int) -> list[int]:
    """One or more different axes in any order, each counted from either end."""
    chosen = net.draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    return [a - rank if net.draw(BOOL) else a for a in chosen]


def factorization(net: Net, size: int, max_rank: int = 5) -> list[int]:
    """A shape of ``size`` elements."""
    shape = [1] * net.draw(st.integers(1, max_rank))
    for prime in _prime_factors(size):
        shape[net.draw(st.integers(0, len(shape) - 1))] *= prime
    return shape


def _prime_factors(size: int) -> list[int]:
    for divisor in range(2, math.isqrt(size) + 1):
        if size % divisor == 0:
            return [divisor, *_prime_factors(size // divisor)]
    return [size] if size > 1 else []


def weights(net: Net, shape: tuple[int, ...], terms: int, runtime: bool = False) -> Tensor:
    """Weights that bring a sum of ``terms`` products to order 3, where the fused activations bend.

    runtime: they are not the model's own but an input of it.
    """
    return (net.input if runtime else net.constant)(net.normal(shape, 3 / np.sqrt(terms)))
