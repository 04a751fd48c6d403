"""Drawn networks of 16 bits give the integers of LiteRT's reference kernels."""

from __future__ import annotations

import pytest

import tflgpu
from tests.safety.drawn.sixteen_bits import BLOCKS, Array, drawn, drawn_lstm, greatest_difference
from tflgpu.options import KernelFamily


@pytest.mark.quick(when=lambda seed, device_name: seed < 2)
@pytest.mark.parametrize("seed", range(24))
def test_networks(seed: int, device_name: str) -> None:
    """Single blocks one after another in all seeds, then networks of all of them."""
    blocks = [*dict.fromkeys(BLOCKS)]
    agree(*drawn(seed, blocks[seed : seed + 1] or BLOCKS), seed, device_name)


@pytest.mark.quick(when=lambda seed, device_name: seed < 1)
@pytest.mark.parametrize("seed", range(12))
def test_lstms(seed: int, device_name: str) -> None:
    """All kinds twice: with a projection, peepholes or neither, and with an input gate or without."""
    agree(*drawn_lstm(seed), seed, device_name)


def agree(data: bytes, inputs: list[Array], seed: int, device_name: str) -> None:
    """All integers are LiteRT's, by a CPU's kernels and a GPU's."""
    family: KernelFamily = "gpu" if seed % 3 == 2 else "auto"
    execution = tflgpu.Execution(kernels=family)
    options = tflgpu.Options(device=device_name, cache="off", fallback="forbid", execution=execution)
    assert greatest_difference(data, inputs, options) == 0
