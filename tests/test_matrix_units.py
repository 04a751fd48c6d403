"""Kernels for matrix units, without such a device: layouts, the choice of the variant, and whole kernels emulated."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tflgpu.compiler import plan_model
from tflgpu.layout import LANES, pack
from tflgpu.ops import fused_kernels, matrix_kernels, mean_kernels, separable_kernels
from tflgpu.ops.packed_weights import SIDE, pack_fragments
from tflgpu.plan import fusion
from tflgpu.target import Target
from tflgpu.writer import ModelBuilder

from . import emulated_matrix_units as emulated
from .conftest import missing
from .ops import reference
from .ops.case import Net, Tensor
from .ops.reference import Window
from .ops.tolerance import ARITHMETIC, check
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


@dataclass(frozen=True)
class Division:
    """How kernels are to divide their work, on an image of ``shape`` and a depthwise ``window``.

    part: blocks of rows, blocks of columns, and splits of a convolution. pair: rows of the result, blocks of columns,
    and splits of a pointwise convolution together with the depthwise one that reads it.
    """

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    part: tuple[int, int, int]
    pair: tuple[int, int, int]


DIVISIONS = (
    Division((1, 5, 4, 20), 24, Window((3, 3), padding="SAME"), part=(1, 1, 1), pair=(5, 1, 1)),
    Division((2, 9, 7, 40), 50, Window((3, 3), (2, 2), padding="SAME"), part=(2, 2, 2), pair=(2, 3, 1)),
    Division((2, 4, 3, 64), 33, Window((2, 3), dilation=(2, 1)), part=(1, 4, 4), pair=(1, 2, 2)),
    Division((1, 6, 13, 128), 13, Window((5, 5), padding="SAME"), part=(4, 2, 1), pair=(3, 1, 1)),
)


def network(net: Net, case: Division) -> Tensor:
    """A pointwise convolution, one that joins the depthwise one behind it, and a dense one that a residual joins."""
    depth, window = case.shape[3], case.window
    x = convolution(net, net.input(net.normal(case.shape)), depth, Window((1, 1)), "NONE")
    x = convolution(net, x, case.channels, Window((1, 1)), "RELU6")
    x = depthwise(net, x, window, "RELU")
    y = convolution(net, x, case.channels, Window((3, 3), padding="SAME"), "NONE")
    return net.op("ADD", [x, y], x.value + y.value, activation="NONE")


def convolution(net: Net, x: Tensor, out: int, window: Window, activation: str) -> Tensor:
    terms = x.shape[3] * window.kernel[0] * window.kernel[1]
    filters, bias = (
        net.constant(net.normal((out, *window.kernel, x.shape[3]), terms**-0.5)),
        net.constant(net.normal((out,))),
    )
    value = reference.conv_2d(x.value, filters.value, bias.value, window)
    return net.op("CONV_2D", [x, filters, bias], value, options(window), activation=activation, terms=terms)


def depthwise(net: Net, x: Tensor, window: Window, activation: str) -> Tensor:
    filters = net.constant(net.normal((1, *window.kernel, x.shape[3]), 0.3))
    bias = net.constant(net.normal((x.shape[3],)))
    value = reference.depthwise_conv_2d(x.value, filters.value, bias.value, window)
    return net.op("DEPTHWISE_CONV_2D", [x, filters, bias], value, options(window), activation=activation)


def options(w: Window) -> dict[str, object]:
    strides = {"padding": w.padding, "stride_h": w.stride[0], "stride_w": w.stride[1]}
    return strides | {"dilation_h_factor": w.dilation[0], "dilation_w_factor": w.dilation[1]}


@pytest.mark.parametrize("case", DIVISIONS, ids=str)
def test_emulated_kernels_give_the_right_result(case: Division, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text that a GPU gets, for every way to divide the work, and the same of a pair as of its two kernels."""
    if all(d.platform != emulated.DEVICE for d in tflgpu.devices()):
        missing(f"the OpenCL runtime {emulated.DEVICE!r}")
    monkeypatch.setattr(matrix_kernels, "PARTS", (case.part[:2],))
    monkeypatch.setattr(matrix_kernels, "SPLITS", (case.part[2],))
    for name, value in zip(("ROWS", "COLUMN_BLOCKS", "SPLITS"), case.pair, strict=True):
        monkeypatch.setattr(fused_kernels, name, (value,))
    net = Net(pytest.fail, seed=1)  # it draws nothing
    net.output(network(net, case))
    model = net.case(ARITHMETIC)
    results = []
    for saved, count in ((1e9, 4), (-1e9, 5)):  # cycles between two kernels
        monkeypatch.setitem(fusion.NEXT_KERNEL, "persistent", saved)
        _, plan = plan_model(model.model, tflgpu.Options(), emulated.TARGET)
        assert len(plan.kernels) == count
        (got,) = emulated.run(plan, model.inputs)
        check(got, model.expected[0], replace(model.tolerance, fp16=2e-3), "fp16", model.describe)
        results.append(got)
    np.testing.assert_allclose(*results, atol=2e-3 * np.abs(results[0]).max())


@dataclass(frozen=True)
class Ends:
    """A depthwise convolution of an image of ``shape`` that joins a pointwise one, and one that a mean joins.

    part: blocks of rows, blocks of columns, parts of columns, and splits of the first pair; quads: of its
    depthwise result that each work-item computes. splits: of the second.
    """

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    part: tuple[int, int, int, int]
    quads: int
    splits: int


ENDS = (
    Ends((1, 5, 4, 20), 24, Window((3, 3), padding="SAME"), part=(1, 1, 1, 1), quads=1, splits=1),
    Ends((2, 9, 7, 40), 64, Window((3, 3), (2, 2), padding="SAME"), part=(2, 2, 2, 1), quads=3, splits=2),
    Ends((2, 4, 3, 64), 33, Window((2, 3), dilation=(2, 1)), part=(1, 1, 1, 4), quads=2, splits=1),
    Ends((1, 6, 13, 32), 80, Window((5, 5), padding="SAME"), part=(8, 1, 5, 1), quads=8, splits=1),
)


@pytest.mark.parametrize("case", ENDS, ids=str)
def test_emulated_pairs_give_the_right_result(case: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above: a depthwise convolution within the pointwise one behind it, and a mean behind a pointwise one."""
    if all(d.platform != emulated.DEVICE for d in tflgpu.devices()):
        missing(f"the OpenCL runtime {emulated.DEVICE!r}")
    names = ("ROW_BLOCKS", "COLUMN_BLOCKS", "COLUMN_PARTS", "SPLITS")
    for name, value in zip(names, case.part, strict=True):
        monkeypatch.setattr(separable_kernels, name, (value,))
    monkeypatch.setattr(mean_kernels, "SPLITS", (case.splits,))
    monkeypatch.setitem(fusion.NEXT_KERNEL, "persistent", 1e9)
    net = Net(pytest.fail, seed=1)  # it draws nothing
    image = convolution(net, net.input(net.normal(case.shape)), case.shape[3], Window((1, 1)), "NONE")
    x = convolution(net, depthwise(net, image, case.window, "RELU6"), case.channels, Window((1, 1)), "RELU")
    net.output(x)
    y = convolution(net, x, 40, Window((1, 1)), "RELU6")
    axes = net.constant(np.array([1, 2], np.int32))
    net.output(net.op("MEAN", [y, axes], y.value.mean((1, 2), keepdims=True), {"keep_dims": True}))
    model = net.case(ARITHMETIC)
    _, plan = plan_model(model.model, tflgpu.Options(), emulated.TARGET)
    kernels = {k.node.kind: k.kernel for k in plan.kernels}
    assert "pointwise_mean" in kernels
    slices = kernels["depthwise_pointwise"].parameters["slices"]
    assert isinstance(slices, int)
    assert slices * SIDE * case.part[0] == case.quads * emulated.TARGET.local_size
    for got, expected in zip(emulated.run(plan, model.inputs), model.expected, strict=True):
        check(got, expected, replace(model.tolerance, fp16=2e-3), "fp16", model.describe)
