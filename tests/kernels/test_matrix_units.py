"""Kernels for matrix units, without such a device: layouts, and the choice of the kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.kernels.fused_networks import convolutions
from tests.kernels.networks import convolution
from tests.ops.case import Net
from tests.ops.windows import Window
from tests.support.models import Builder
from tests.support.planning import graph_of, plan_of, templates
from tests.support.targets import H200
from tflgpu.graph.layout import LANES, pack
from tflgpu.kernels.mma.gemm import k_tiles
from tflgpu.kernels.mma.gemm.k_tiles import GroupTile
from tflgpu.kernels.mma.m16n8k16 import M16N8K16, SIDE, Operands, pack_fragments
from tflgpu.plan import make_plan

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


@pytest.mark.parametrize("storage", ["half", "float"])
def test_matrix_units_take_both_precisions(storage: Literal["half", "float"]) -> None:
    target = replace(H200, storage=storage)
    assert templates(plan_of(convolutions(20), target)) == ["mma/gemm/few_channels", "mma/gemm/direct"]
    assert templates(plan_of(convolutions(20), replace(target, matrix_unit=None))) == ["gpu/convolution"] * 2


@pytest.mark.parametrize("kept", ["output", "image"])
@pytest.mark.parametrize("exact", [True, False])
def test_what_is_kept_is_in_float_on_matrix_units(kept: str, exact: bool) -> None:
    """So are weights beside it that half does not hold."""
    builder, random = Builder(), np.random.default_rng(0)
    x = builder.input((1, 9, 9, 16))
    for name in ("image", "output", "last"):
        weights = random.normal(size=(16, 1, 1, 16)).astype(np.float16 if exact else np.float32)
        x = builder.convolution(x, 16, weights=weights, name=name)
    graph = graph_of(builder.finish([x]))
    marked = [replace(t, precise=True) for t in graph.tensors.values() if t.name == kept]
    plan = make_plan(graph.with_nodes(graph.nodes, marked), H200)
    (kernel,) = (k for k in plan.kernels if plan.graph[k.node.output].name == "output")
    assert kernel.kernel.template == "mma/gemm/direct"
    operands = Operands("float" if kept == "image" else "half", "half" if exact else "float")
    assert vars(kernel.kernel.parameters)["operands"] == operands
    assert {a.type for a in kernel.arguments if a.name == "weights"} == {operands.weights}


def test_a_float_image_is_rounded_only_if_the_result_is() -> None:
    net = Net(seed=0)
    image = net.input(net.normal((1, 6, 6, 3)))
    y = convolution(net, image, 8, Window((3, 3)), "NONE")
    net.output(convolution(net, y, 8, Window((1, 1)), "NONE"))
    plan = plan_of(net.case().model, H200)
    (first, _) = (k.kernel for k in plan.kernels)
    assert vars(first.parameters)["operands"] == Operands("half", "half")
    net = Net(seed=0)
    net.output(convolution(net, net.input(net.normal((1, 6, 6, 3))), 8, Window((3, 3)), "NONE"))
    plan = plan_of(net.case().model, H200)
    (kernel,) = (k.kernel for k in plan.kernels)
    assert vars(kernel.parameters)["operands"] == Operands("float", "half")


@pytest.mark.parametrize(
    ("shape", "channels", "template"),
    [
        ((1, 1, 1, 512), 512, "portable/vector_product"),
        ((16, 1, 1, 512), 512, "portable/matrix_product"),
        ((32, 1, 1, 512), 512, "mma/gemm/direct"),
        ((1, 256, 256, 8), 1, "gpu/convolution"),
        ((1, 256, 256, 8), 32, "mma/gemm/direct"),
    ],
)
def test_floats_are_left_to_work_items_where_these_are_faster(
    shape: tuple[int, int, int, int], channels: int, template: str
) -> None:
    """Few rows, or one channel of many pixels."""
    builder = Builder()
    y = builder.convolution(builder.input(shape), channels, min(shape[1], 3))
    plan = plan_of(builder.finish([y]), replace(H200, storage="float"))
    assert plan.kernels[-1].kernel.template == template


def test_every_tile_and_split_covers_the_output() -> None:
    plan = plan_of(convolutions(20), H200)
    kernel = plan.kernels[1].kernel
    rows, columns, split_k, k_steps, per_split = (
        vars(kernel.parameters)[name]
        for name in ("row_blocks", "column_blocks", "split_k", "input_blocks", "k_steps_per_split")
    )
    assert isinstance(rows, int) and isinstance(columns, int) and isinstance(split_k, int)
    assert isinstance(k_steps, int) and isinstance(per_split, int)
    assert vars(kernel.parameters)["column_tiles"] == -(-2 // columns)
    warps = H200.local_size // 32 // split_k
    assert kernel.tiles * rows * SIDE * warps >= 81 * -(-2 // columns)
    assert split_k * per_split >= 9 * k_steps


@pytest.mark.parametrize("pixels_at_once", [1, 2])
@pytest.mark.parametrize("k_steps", k_tiles.STAGES)
@pytest.mark.parametrize("tile", k_tiles.GROUP_TILES, ids=str)
def test_work_items_share_copies_evenly(tile: GroupTile, k_steps: int, pixels_at_once: int) -> None:
    """Each copies one row of several slices, and the same lane of several blocks of weights, to one of two stages."""
    assert 2 * k_steps * SIDE * 2 * (tile.rows + tile.columns) <= k_tiles.LOCAL_BYTES
    items = tile.rows // pixels_at_once
    assert tile.local_size % items == 0
    assert tile.local_size // items in (1, 2, 4)  # of the slices of one step
    assert tile.local_size % (M16N8K16.left_columns * SIDE * 2 // 16 * k_steps) == 0


@pytest.mark.parametrize(
    ("executor", "pixels", "channels", "template"),
    [
        ("launch", 128, 128, "mma/gemm/patch"),
        ("launch", 9, 128, "mma/gemm/direct"),
        ("launch", 128, 4, "mma/gemm/few_channels"),
        ("persistent", 128, 128, "mma/gemm/direct"),
    ],
)
def test_large_images_go_through_local_memory(
    executor: Literal["launch", "persistent"], pixels: int, channels: int, template: str
) -> None:
    """If the kernel is a launch of its own, with tiles for all compute units."""
    builder = Builder()
    x = builder.input((4, pixels, pixels, channels))
    z = builder.convolution(builder.add("ABS", [x]), channels, 3)
    plan = plan_of(builder.finish([z]), replace(H200, executor=executor))
    kernel = plan.kernels[-1].kernel
    assert kernel.template == template
    assert kernel.workspace * 16 <= k_tiles.LOCAL_BYTES
