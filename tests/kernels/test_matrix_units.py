"""Kernels for matrix units, without such a device: layouts, the choice of the kernel, and whole kernels emulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.conftest import missing
from tests.ops import windows
from tests.ops.case import Net, Tensor
from tests.ops.tolerance import ARITHMETIC, check
from tests.ops.windows import Window
from tests.runtime.test_persistent import H200
from tests.support import emulated_matrix_units as emulated
from tflgpu.compiler import plan_model
from tflgpu.graph.layout import LANES, pack
from tflgpu.kernels.nvidia import (
    depthwise_pointwise,
    implicit_gemm,
    implicit_gemm_multistage,
    pointwise_depthwise,
    pointwise_mean,
)
from tflgpu.kernels.nvidia.implicit_gemm_multistage import GroupTile
from tflgpu.kernels.nvidia.matrix_unit import M16N8K16, SIDE, pack_fragments
from tflgpu.model.writer import ModelBuilder
from tflgpu.target import CostModel, Target

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
def test_vec4s_are_operands_and_sums(out: int, depth: int) -> None:
    """A pointwise convolution of 16 pixels as the kernel computes it: whole vec4s in, whole vec4s out."""
    random = np.random.default_rng(0)
    pixels, weights = random.normal(size=(1, 1, 16, depth)), random.normal(size=(out, 1, 1, depth))
    k_steps, blocks = -(-depth // SIDE), -(-out // SIDE)
    slices = -(-depth // LANES)
    vec4s = np.zeros((4 * k_steps, 16, LANES))
    vec4s[:slices] = pack(pixels).reshape(slices, 16, LANES)
    fragments = pack_fragments(weights, 1, k_steps).reshape(blocks, k_steps, 32, 2, 4)
    result = np.zeros((4 * blocks, 16, LANES))
    for block in range(blocks):
        sums = np.zeros((2, 32, 4))
        for k in range(k_steps):
            g, t = np.divmod(np.arange(32), 4)
            low, high = vec4s[4 * k + t, g], vec4s[4 * k + t, g + 8]
            # registers: row g, row g + 8, row g again, row g + 8 again, two inner indices each
            a = np.concatenate([low[:, :2], high[:, :2], low[:, 2:], high[:, 2:]], 1)
            for j in range(2):
                sums[j] += mma(a, fragments[block, k, :, j])
        for lane in range(32):
            g, t = divmod(lane, 4)
            for half in range(2):
                vec4 = sums[:, lane, 2 * half : 2 * half + 2].reshape(-1)
                result[4 * block + t, g + 8 * half] = vec4
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
    assert templates(H200) == ["nvidia/implicit_gemm_few_channels", "nvidia/implicit_gemm"]
    assert templates(replace(H200, storage="float")) == ["gpu/convolution"] * 2
    assert templates(replace(H200, matrix_unit=None)) == ["gpu/convolution"] * 2


def test_a_float_image_is_rounded_only_if_the_result_is() -> None:
    net = Net(pytest.fail, seed=0)
    image = net.input(net.normal((1, 6, 6, 3)))
    net.output(convolution(net, image, 8, Window((3, 3)), "NONE"))
    _, plan = plan_model(net.case(ARITHMETIC).model, tflgpu.Options(), H200)
    assert [k.kernel.template for k in plan.kernels] == ["gpu/convolution"]


def test_every_tile_and_split_covers_the_output() -> None:
    _, plan = plan_model(convolutions(20), tflgpu.Options(), H200)
    kernel = plan.kernels[1].kernel
    rows, columns, split_k, k_steps, per_split = (
        kernel.parameters[name]
        for name in ("row_blocks", "column_blocks", "split_k", "input_blocks", "k_steps_per_split")
    )
    assert isinstance(rows, int) and isinstance(columns, int) and isinstance(split_k, int)
    assert isinstance(k_steps, int) and isinstance(per_split, int)
    assert kernel.parameters["column_tiles"] == -(-2 // columns)
    warps = H200.local_size // 32 // split_k
    assert kernel.tiles * rows * SIDE * warps >= 81 * -(-2 // columns)
    assert split_k * per_split >= 9 * k_steps


@dataclass(frozen=True)
class Division:
    """How kernels are to divide their work, on an image of ``shape`` and a depthwise ``window``.

    tile: blocks of rows, blocks of columns, and split-K of a convolution. pair: rows of the result, blocks of columns,
    and split-K of a pointwise convolution together with the depthwise one that reads it.
    """

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    tile: tuple[int, int, int]
    pair: tuple[int, int, int]


DIVISIONS = (
    Division((1, 5, 4, 20), 24, Window((3, 3), padding="SAME"), tile=(1, 1, 1), pair=(5, 1, 1)),
    Division((2, 9, 7, 40), 50, Window((3, 3), (2, 2), padding="SAME"), tile=(2, 2, 2), pair=(2, 3, 1)),
    Division((2, 4, 3, 64), 33, Window((2, 3), dilation=(2, 1)), tile=(1, 4, 4), pair=(1, 2, 2)),
    Division((1, 6, 13, 128), 13, Window((5, 5), padding="SAME"), tile=(4, 2, 1), pair=(3, 1, 1)),
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
    value = windows.conv_2d(x.value, filters.value, bias.value, window)
    return net.op("CONV_2D", [x, filters, bias], value, options(window), activation=activation, terms=terms)


def depthwise(net: Net, x: Tensor, window: Window, activation: str) -> Tensor:
    filters = net.constant(net.normal((1, *window.kernel, x.shape[3]), 0.3))
    bias = net.constant(net.normal((x.shape[3],)))
    value = windows.depthwise_conv_2d(x.value, filters.value, bias.value, window)
    return net.op("DEPTHWISE_CONV_2D", [x, filters, bias], value, options(window), activation=activation)


def options(w: Window) -> dict[str, object]:
    strides = {"padding": w.padding, "stride_h": w.stride[0], "stride_w": w.stride[1]}
    return strides | {"dilation_h_factor": w.dilation[0], "dilation_w_factor": w.dilation[1]}


@pytest.fixture
def emulation() -> None:
    """Where it is missing, tests that need it are skipped, or fail."""
    if all(d.platform != emulated.DEVICE for d in tflgpu.devices()):
        missing(f"the OpenCL runtime {emulated.DEVICE!r}")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("case", DIVISIONS, ids=str)
def test_emulated_kernels_give_the_right_result(case: Division, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text that a GPU gets, for every way to divide the work, and the same of a pair as of its two kernels."""
    monkeypatch.setattr(implicit_gemm, "WARP_TILES", (case.tile[:2],))
    monkeypatch.setattr(implicit_gemm, "SPLIT_K", (case.tile[2],))
    for name, value in zip(("ROWS", "COLUMN_BLOCKS", "SPLIT_K"), case.pair, strict=True):
        monkeypatch.setattr(pointwise_depthwise, name, (value,))
    net = Net(pytest.fail, seed=1)  # it draws nothing
    net.output(network(net, case))
    model = net.case(ARITHMETIC)
    results = []
    for saved, count, waves in ((1e9, 4, 1000), (-1e9, 5, 0)):  # cycles between two kernels; what few waves are
        monkeypatch.setattr(CostModel, "next_kernel", lambda *_, saved=saved: saved)
        monkeypatch.setattr(implicit_gemm, "FEW_WAVES", waves)
        _, plan = plan_model(model.model, tflgpu.Options(), emulated.TARGET)
        assert len(plan.kernels) == count
        (got,) = emulated.run(plan, model.inputs)
        check(got, model.expected[0], replace(model.tolerance, fp16=2e-3), "fp16", model.describe)
        results.append(got)
    np.testing.assert_allclose(*results, atol=2e-3 * np.abs(results[0]).max())


@dataclass(frozen=True)
class Pairs:
    """A depthwise convolution of an image of ``shape`` that joins a pointwise one, and one that a mean joins.

    tile: blocks of rows, blocks of columns, warp tiles side by side, and split-K of the first pair; vec4s: of its
    depthwise result that each work-item computes. split_k: of the second.
    """

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    tile: tuple[int, int, int, int]
    vec4s: int
    split_k: int


PAIRS = (
    Pairs((1, 5, 4, 20), 24, Window((3, 3), padding="SAME"), tile=(1, 1, 1, 1), vec4s=1, split_k=1),
    Pairs((2, 9, 7, 40), 64, Window((3, 3), (2, 2), padding="SAME"), tile=(2, 2, 2, 1), vec4s=3, split_k=2),
    Pairs((2, 4, 3, 64), 33, Window((2, 3), dilation=(2, 1)), tile=(1, 1, 1, 4), vec4s=2, split_k=1),
    Pairs((1, 6, 13, 32), 80, Window((5, 5), padding="SAME"), tile=(8, 1, 5, 1), vec4s=8, split_k=1),
)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("case", PAIRS, ids=str)
def test_emulated_pairs_give_the_right_result(case: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As above: a depthwise convolution within the pointwise one behind it, and a mean behind a pointwise one."""
    names = ("ROW_BLOCKS", "COLUMN_BLOCKS", "COLUMN_TILES", "SPLIT_K")
    for name, value in zip(names, case.tile, strict=True):
        monkeypatch.setattr(depthwise_pointwise, name, (value,))
    monkeypatch.setattr(pointwise_mean, "SPLIT_K", (case.split_k,))
    monkeypatch.setattr(CostModel, "next_kernel", lambda *_: 1e9)
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
    assert slices * SIDE * case.tile[0] == case.vec4s * emulated.TARGET.local_size
    for got, expected in zip(emulated.run(plan, model.inputs), model.expected, strict=True):
        check(got, expected, replace(model.tolerance, fp16=2e-3), "fp16", model.describe)


@dataclass(frozen=True)
class FewChannels:
    """Two convolutions of few channels, the first of the host's image, and the tile that a warp computes of each.

    pipelined: whether it loads k-steps while it multiplies others.
    """

    shape: tuple[int, int, int, int]
    between: int
    window: Window
    tile: tuple[int, int, int]
    pipelined: bool


FEW_CHANNELS = (
    FewChannels((1, 13, 11, 1), 3, Window((7, 7), (2, 2), padding="SAME"), tile=(1, 2, 4), pipelined=False),
    FewChannels((2, 9, 8, 2), 1, Window((2, 3), dilation=(2, 1)), tile=(2, 1, 1), pipelined=True),
    FewChannels((3, 6, 7, 3), 4, Window((3, 3), padding="SAME"), tile=(1, 1, 2), pipelined=True),
    FewChannels((2, 5, 6, 4), 2, Window((1, 1)), tile=(2, 2, 1), pipelined=False),
)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("case", FEW_CHANNELS, ids=str)
def test_emulated_kernels_of_few_channels(case: FewChannels, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's image and one that was computed. A NaN in the first pixel reaches its windows only."""
    monkeypatch.setattr(implicit_gemm, "WARP_TILES", (case.tile[:2],))
    monkeypatch.setattr(implicit_gemm, "SPLIT_K", (case.tile[2],))
    monkeypatch.setattr(implicit_gemm, "FEW_WAVES", 0 if case.pipelined else 1000)
    net = Net(pytest.fail, seed=2)
    image = net.normal(case.shape)
    image[0, 0, 0] = np.nan
    x = convolution(net, net.input(image), case.between, case.window, "NONE")
    y = convolution(net, x, 20, case.window, "NONE")
    net.output(y)
    _, plan = plan_model(net.case(ARITHMETIC).model, tflgpu.Options(), emulated.TARGET)
    assert [k.kernel.template for k in plan.kernels] == ["nvidia/implicit_gemm_few_channels"] * 2
    (got,) = emulated.run(plan, [image])
    assert np.isfinite(y.value).any() and np.isnan(y.value).any()
    np.testing.assert_allclose(got, y.value, atol=2e-3 * np.nanmax(np.abs(y.value)))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("depth", [3, 20])
def test_a_pointwise_convolution_with_padding(depth: int) -> None:
    """A window of one tap that may be outside the image: where it is, the result is the bias."""
    net = Net(pytest.fail, seed=4)
    image = net.normal((1, 4, 5, depth))
    x = net.input(image)
    x = net.op("MUL", [x, x], x.value * x.value, activation="NONE")
    border = ((0, 0), (1, 2), (0, 1), (0, 0))
    x = net.op("PAD", [x, net.integers(border)], np.pad(x.value, border))
    net.output(y := convolution(net, x, 20, Window((1, 1), (2, 1)), "NONE"))
    _, plan = plan_model(net.case(ARITHMETIC).model, tflgpu.Options(), emulated.TARGET)
    assert len(plan.kernels) == 2 and plan.kernels[1].kernel.template.startswith("nvidia/implicit_gemm")
    check(emulated.run(plan, [image])[0], y.value, replace(ARITHMETIC, fp16=2e-3), "fp16")


@dataclass(frozen=True)
class Multistage:
    """A convolution of an image of ``shape``, the tile of a group, and how its operands lie in local memory.

    late: whether they are there only once a work-item has waited for them.
    """

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    tile: GroupTile
    k_steps: int
    stages: int
    late: bool


PADDED = Window((3, 3), padding="SAME")
STRIDED = Window((3, 3), (2, 2), padding="SAME")
DILATED = Window((2, 3), dilation=(2, 1))
MULTISTAGE = (
    Multistage((2, 9, 8, 40), 50, Window((1, 1)), GroupTile(2, 2, 2, 1), k_steps=2, stages=3, late=True),
    Multistage((1, 8, 9, 100), 70, Window((1, 1)), GroupTile(2, 2, 4, 1), k_steps=1, stages=4, late=False),
    Multistage((2, 13, 10, 48), 40, Window((1, 1)), GroupTile(4, 2, 4, 1), k_steps=1, stages=4, late=True),
    Multistage((3, 7, 7, 16), 130, Window((1, 1)), GroupTile(2, 2, 2, 2), k_steps=1, stages=4, late=True),
    Multistage(
        (2, 9, 7, 40),
        50,
        Window((3, 3), (2, 2), padding="SAME"),
        GroupTile(2, 2, 2, 1),
        k_steps=2,
        stages=2,
        late=False,
    ),
    Multistage((2, 13, 12, 36), 64, PADDED, GroupTile(4, 2, 4, 2), k_steps=1, stages=3, late=True),
    Multistage((3, 8, 9, 20), 96, DILATED, GroupTile(2, 4, 4, 1), k_steps=1, stages=2, late=True),
    Multistage((2, 9, 9, 64), 33, Window((1, 1), (2, 2)), GroupTile(2, 2, 4, 2), k_steps=2, stages=2, late=False),
)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("case", MULTISTAGE, ids=str)
def test_emulated_multistage_kernels(case: Multistage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution that a residual joins, through local memory."""
    monkeypatch.setattr(implicit_gemm_multistage, "GROUP_TILES", (case.tile,))
    monkeypatch.setattr(implicit_gemm_multistage, "STAGES", {case.k_steps: case.stages})
    monkeypatch.setattr(implicit_gemm, "candidates", lambda *_: [])
    net = Net(pytest.fail, seed=5)  # it draws nothing
    x = net.input(net.normal(case.shape))
    x = net.op("MUL", [x, x], x.value * x.value, activation="NONE")  # which is stored in half
    y = convolution(net, x, case.channels, case.window, "RELU")
    z = net.input(net.normal(y.shape))
    net.output(net.op("ADD", [y, z], y.value + z.value, activation="NONE"))
    model = net.case(ARITHMETIC)
    _, plan = plan_model(model.model, tflgpu.Options(), replace(emulated.TARGET, executor="launch", compute_units=1))
    (kernel,) = (k.kernel for k in plan.kernels if k.node.kind == "convolution")
    assert kernel.template == "nvidia/implicit_gemm_multistage" and kernel.parameters["stages"] == case.stages
    (got,) = emulated.run(plan, model.inputs, late=case.late)
    check(got, model.expected[0], replace(model.tolerance, fp16=2e-3), "fp16", model.describe)


@pytest.mark.parametrize("pixels_at_once", [1, 2])
@pytest.mark.parametrize("k_steps", implicit_gemm_multistage.STAGES)
@pytest.mark.parametrize("tile", implicit_gemm_multistage.GROUP_TILES, ids=str)
def test_work_items_share_copies_evenly(tile: GroupTile, k_steps: int, pixels_at_once: int) -> None:
    """Each copies one row of several slices, and the same lane of several blocks of weights, to one of two stages."""
    assert 2 * k_steps * SIDE * 2 * (tile.rows + tile.columns) <= implicit_gemm_multistage.LOCAL_BYTES
    items = tile.rows // pixels_at_once
    assert tile.local_size % items == 0
    assert tile.local_size // items in (1, 2, 4)  # of the slices of one step
    assert tile.local_size % (M16N8K16.left_columns * SIDE * 2 // 16 * k_steps) == 0


@pytest.mark.parametrize(
    ("executor", "pixels", "channels", "template"),
    [
        ("launch", 128, 128, "nvidia/implicit_gemm_multistage"),
        ("launch", 9, 128, "nvidia/implicit_gemm"),
        ("launch", 128, 4, "nvidia/implicit_gemm_few_channels"),
        ("persistent", 128, 128, "nvidia/implicit_gemm"),
    ],
)
def test_large_images_go_through_local_memory(
    executor: Literal["launch", "persistent"], pixels: int, channels: int, template: str
) -> None:
    """If the kernel is a launch of its own, with tiles for all compute units."""
    builder, random = ModelBuilder(), np.random.default_rng(0)
    shape = (4, pixels, pixels, channels)
    x, y, z = builder.input(shape), builder.tensor(shape), builder.tensor(shape)
    weights = builder.constant(random.normal(size=(channels, 3, 3, channels)).astype(np.float32))
    bias = builder.constant(np.zeros(channels, np.float32))
    builder.op("MUL", [x, x], [y], {"fused_activation_function": "NONE"})
    builder.op("CONV_2D", [y, weights, bias], [z], options(Window((3, 3), padding="SAME")))
    _, plan = plan_model(builder.finish([z]), tflgpu.Options(), replace(H200, executor=executor))
    kernel = plan.kernels[-1].kernel
    assert kernel.template == template
    assert kernel.workspace * 16 <= implicit_gemm_multistage.LOCAL_BYTES
