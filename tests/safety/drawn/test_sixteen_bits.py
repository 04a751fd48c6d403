"""Drawn networks of 16 bits give the integers of LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

import tflgpu
from tests.quick import on_first_runtime
from tests.safety.drawn.sixteen_bits import BLOCKS, Array, differences, drawn, drawn_lstm
from tests.support.running import options_of
from tests.support.side_by_side import joined

NETWORKS, LSTMS = range(24), range(12)

# Seeds whose networks are one program, a part of them for a GPU's kernels.
BATCHES = {"cpu": (0, 1), "cpu, others": (3, 4), "gpu": (2, 5)}


@pytest.mark.quick(when=on_first_runtime)
@pytest.mark.parametrize("batch", BATCHES)
def test_networks(batch: str, device_name: str) -> None:
    """Single blocks one after another in all seeds, then networks of all of them."""
    blocks = [*dict.fromkeys(BLOCKS)]
    agree(batch, NETWORKS, lambda seed: drawn(seed, blocks[seed : seed + 1] or BLOCKS), device_name)


@pytest.mark.quick(when=on_first_runtime)
@pytest.mark.parametrize("batch", BATCHES)
def test_lstms(batch: str, device_name: str) -> None:
    """All kinds twice: with a projection, peepholes or neither, and with an input gate or without."""
    agree(batch, LSTMS, drawn_lstm, device_name)


def agree(batch: str, seeds: Sequence[int], draw: Callable[[int], tuple[bytes, list[Array]]], device_name: str) -> None:
    """All integers are LiteRT's, by a CPU's kernels and a GPU's."""
    kernels = "gpu" if batch == "gpu" else "auto"
    options = options_of(precision="auto", device=device_name, kernels=kernels, fallback="forbid")
    cases = {seed: draw(seed) for seed in seeds if seed % 6 in BATCHES[batch]}
    with tflgpu.compile(joined(data for data, _ in cases.values()), options) as model:
        found = differences(model, [*cases.values()])
    assert dict(zip(cases, found, strict=True)) == dict.fromkeys(cases, 0), "steps by seed"
