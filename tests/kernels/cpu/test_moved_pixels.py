"""Reshapes, transposes and slices on CPUs, where pixels and channels of the output come from different places."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.case import Net, Tensor
from tests.support.running import run_checked

# The shape of an image and of a batch, how often they are sliced, and the seed of what follows.
SHAPES = [(1, 1, 77, 57), (2, 5, 7, 12), (1, 6, 4, 38), (3, 1, 10, 20), (8, 1, 1, 24), (1, 9, 70, 3), (2, 4, 6, 8)]
# Reshapes of elements 0, 1 and 2, whose pixels do not keep to those of the source.
CARRIED = (1, 6, 10, 3), (1, 4, 9, 5)


def network(shape: tuple[int, ...], seed: int) -> Net:
    """A network that slices, reshapes and transposes an image by turns, and computes before and after it."""
    net = Net(seed=seed)
    x = net.input(net.normal(shape))
    x = net.op("ABS", [x], np.abs(x.value))
    rng = np.random.default_rng(seed)
    if seed % 2:
        size = [int(rng.integers(1, n + 1)) for n in x.shape]
        begin = [int(rng.integers(0, n - m + 1)) for n, m in zip(x.shape, size, strict=True)]
        value = x.value[tuple(slice(b, b + m) for b, m in zip(begin, size, strict=True))]
        x = net.op("SLICE", [x, net.integers(begin), net.integers(size)], value)
    x = transposed(net, reshaped(net, x, factorized(x.shape, rng)), rng)
    x = reshaped(net, x, merged(x.shape, rng))
    net.output(net.op("NEG", [x], -x.value))
    return net


def factorized(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    """Up to six axes, some of which are factors of one of ``shape``."""
    axes: list[int] = []
    for n in shape:
        divisors = [d for d in range(2, n) if n % d == 0]
        axes += [n // (d := int(rng.choice(divisors))), d] if divisors and len(axes) < 4 else [n]
    return tuple(n for n in axes if n > 1)[-6:] if np.prod(axes) == np.prod(axes[-6:]) else shape


def merged(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    """Axes of ``shape`` whose neighbours are joined until there are three."""
    axes = list(shape)
    while len(axes) > 3:
        i = int(rng.integers(0, len(axes) - 1))
        axes[i : i + 2] = [axes[i] * axes[i + 1]]
    return tuple(axes)


def reshaped(net: Net, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return net.op("RESHAPE", [x, net.integers(shape)], x.value.reshape(shape), {"new_shape": list(shape)})


def transposed(net: Net, x: Tensor, rng: np.random.Generator) -> Tensor:
    order = [int(axis) for axis in rng.permutation(len(x.shape))]
    return net.op("TRANSPOSE", [x, net.integers(order)], x.value.transpose(order))


@pytest.mark.quick(when=lambda shape, precision: shape == SHAPES[0] and precision == "fp32")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_moved_elements_are_right(shape: tuple[int, ...], precision: str, device_name: str) -> None:
    sources = [run_checked(network(shape, seed).case(), device=device_name, precision=precision) for seed in range(4)]
    assert any("cpu_moved_pixels" in source for source in sources)


def test_pixels_that_carry_are_left_to_any_movement(device_name: str) -> None:
    net = Net(seed=1)
    x = net.input(net.normal(CARRIED[0]))
    x = reshaped(net, net.op("ABS", [x], np.abs(x.value)), CARRIED[1])
    net.output(net.op("NEG", [x], -x.value))
    source = run_checked(net.case(), device=device_name)
    assert "movement_strided" in source
    assert "cpu_moved_pixels" not in source
