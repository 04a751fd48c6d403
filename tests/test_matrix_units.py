"""Convolutions on matrix units: what can be tested without such a device, the layouts and the choice of the variant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tflgpu.compiler import plan_model
from tflgpu.layout import LANES, pack
from tflgpu.ops.packed_weights import SIDE, pack_fragments
from tflgpu.target import Target
from tflgpu.writer import ModelBuilder

from .test_persistent import H200

Floats = NDArray[np.float64]


def mma(a: Floats, b: Floats) -> Floats:
    """mma.sync.m16n8k16 by lane: operands [32, 8] and [32, 4], sums [32, 4], as the PTX ISA lays them out."""
    left, right = np.zeros((16, 16)), np.zeros((16, 8))
    for lane in range(32):
        g, t = divmod(lane, 4)
        for i in range(8):
            left[g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)] = a[lane, i]
        for i in range(4):
            right[2 * t + i % 2 + 8 * (i // 2), g] = b[lane, i]
    product = left @ right
    return np.array(
        [[product[lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2] for i in range(4)] for lane in range(32)]
    )


@pytest.mark.parametrize(("out", "depth"), [(16, 16), (20, 24), (33, 5)])
def test_quads_are_operands_and_sums(out: int, depth: int) -> None:
    """A pointwise convolution of 16 pixels as the kernel computes it: whole quads in, whole quads out."""
    random = np.random.default_rng(0)
    pixels, weights = random.normal(size=(1, 1, 16, depth)), random.normal(size=(out, 1, 1, depth))
    steps, blocks = -(-depth // SIDE), -(-out // SIDE)
    slices = -(-depth // LANES)
    quads = np.zeros((4 * steps, 16, LANES))
    quads[:slices] = pack(pixels).reshape(slices, 16, LANES)
    fragments = pack_fragments(weights, 1, steps).reshape(blocks, steps, 32, 2, 4)
    result = np.zeros((4 * blocks, 16, LANES))
    for block in range(blocks):
        sums = np.zeros((2, 32, 4))
        for k in range(steps):
            g, t = np.divmod(np.arange(32), 4)
            low, high = quads[4 * k + t, g], quads[4 * k + t, g + 8]
            # registers: row g, row g + 8, row g again, row g + 8 again, two inner indices each
            a = np.concatenate([low[:, :2], high[:, :2], low[:, 2:], high[:, 2:]], 1)
            for j in range(2):
                sums[j] += mma(a, fragments[block, k, :, j])
        for lane in range(32):
            g, t = divmod(lane, 4)
            for half in range(2):
                quad = sums[:, lane, 2 * half : 2 * half + 2].reshape(-1)
                result[4 * block + t, g + 8 * half] = quad
    got = result.transpose(1, 0, 2).reshape(16, -1)
    np.testing.assert_allclose(got[:, :out], pixels[0, 0] @ weights[:, 0, 0].T, atol=1e-5)
    assert not got[:, out:].any()


def convolutions(channels: int) -> bytes:
    """Two convolutions: the second reads what the first computes."""
    builder, random = ModelBuilder(), np.random.default_rng(0)
    x = builder.input((1, 9, 9, 3))
    for depth in (3, channels):
        weights = builder.constant(random.normal(size=(channels, 3, 3, depth)).astype(np.float32))
        bias = builder.constant(random.normal(size=channels).astype(np.float32))
        y = builder.tensor((1, 9, 9, channels))
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "fused_activation_function": "RELU"}
        builder.op("CONV_2D", [x, weights, bias], [y], options)
        x = y
    return builder.finish([x])


def templates(target: Target) -> list[str]:
    _, plan = plan_model(convolutions(20), tflgpu.Options(), target)
    return [k.kernel.template for k in plan.kernels]


def test_matrix_units_take_half_precision_only() -> None:
    # The first convolution reads the host's image, which is in float.
    assert templates(H200) == ["convolution_gpu", "convolution_mma"]
    assert templates(replace(H200, storage="float")) == ["convolution_gpu"] * 2
    assert templates(replace(H200, matrix_units=False)) == ["convolution_gpu"] * 2


def test_every_part_and_split_covers_the_output() -> None:
    _, plan = plan_model(convolutions(20), tflgpu.Options(), H200)
    kernel = plan.kernels[1].kernel
    rows, columns, splits, steps, per_split = (
        kernel.parameters[name] for name in ("row_blocks", "column_blocks", "splits", "input_blocks", "steps_per_split")
    )
    assert isinstance(rows, int) and isinstance(columns, int) and isinstance(splits, int)
    assert isinstance(steps, int) and isinstance(per_split, int)
    assert kernel.parameters["column_tiles"] == -(-2 // columns)
    warps = H200.local_size // 32 // splits
    assert kernel.tiles * rows * SIDE * warps >= 81 * -(-2 // columns)
    assert splits * per_split >= 9 * steps
