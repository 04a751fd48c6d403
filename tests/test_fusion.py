"""Pointwise convolutions that are computed within the depthwise one that reads them, on devices with matrix units."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tflgpu.compiler import plan_model
from tflgpu.ir import Node
from tflgpu.ops import fused_kernels
from tflgpu.ops.fused_kernels import fused_parts
from tflgpu.ops.group_work import LOCAL_QUADS
from tflgpu.plan import Plan, fusion
from tflgpu.plan.levels import levels
from tflgpu.target import Target
from tflgpu.writer import ModelBuilder

from .test_persistent import H200

KIND = "pointwise_depthwise"


class Pair:
    """A model around a pointwise convolution and a depthwise one; another one before them makes an image of halves."""

    def __init__(self, channels: int = 24) -> None:
        self.builder, self.random, self.channels = ModelBuilder(), np.random.default_rng(0), channels
        self.image = self.convolution(self.builder.input((1, 8, 8, 12)), 12, 16)

    def constant(self, *shape: int) -> int:
        return self.builder.constant(self.random.normal(size=shape).astype(np.float32))

    def result(self, channels: int) -> int:
        return self.builder.tensor((1, 8, 8, channels))

    def convolution(self, x: int, depth: int, channels: int, side: int = 1, activation: str = "NONE") -> int:
        y = self.result(channels)
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "fused_activation_function": activation}
        weights = self.constant(channels, side, side, depth)
        self.builder.op("CONV_2D", [x, weights, self.constant(channels)], [y], options)
        return y

    def pointwise(self, side: int = 1, activation: str = "RELU6") -> int:
        return self.convolution(self.image, 16, self.channels, side, activation)

    def depthwise(self, x: int, side: int = 3, multiplier: int = 1) -> int:
        channels = self.channels * multiplier
        y, weights = self.result(channels), self.constant(1, side, side, channels)
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "depth_multiplier": multiplier}
        options |= {"fused_activation_function": "RELU"}
        self.builder.op("DEPTHWISE_CONV_2D", [x, weights, self.constant(channels)], [y], options)
        return y

    def op(self, code: str, *inputs: int) -> int:
        y = self.result(self.channels)
        self.builder.op(code, list(inputs), [y], {"fused_activation_function": "NONE"} if code == "ADD" else None)
        return y


@pytest.fixture(autouse=True)
def always_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fuses here is all that can."""
    monkeypatch.setitem(fusion.NEXT_KERNEL, "persistent", 1e9)


def plan_of(model: bytes, target: Target = H200) -> Plan:
    return plan_model(model, tflgpu.Options(), target)[1]


def fused(pair: Pair, *outputs: int, target: Target = H200) -> list[Node]:
    plan = plan_of(pair.builder.finish(list(outputs)), target)
    return [k.node for k in plan.kernels if k.node.kind == KIND]


def test_a_pair_is_one_kernel_of_both_operators() -> None:
    pair = Pair()
    plan = plan_of(pair.builder.finish([pair.depthwise(pair.pointwise())]))
    assert [k.node.kind for k in plan.kernels] == ["map", "convolution", KIND]
    assert plan.kernels[-1].node.sources == (1, 2)
    assert levels(plan) == (0, 1, 2)
    pointwise, depthwise = 8 * 8 * 24 * 16, 8 * 8 * 24 * 9
    assert plan.kernels[-1].kernel.macs == pointwise + depthwise


def test_a_residual_joins_the_pair() -> None:
    pair = Pair(channels=16)
    (node,) = fused(pair, pair.op("ADD", pair.image, pair.depthwise(pair.pointwise())))
    assert node.inputs[0] == node.inputs[min(node.step_inputs)], "the image is read by the kernel and by its last step"


def test_activations_of_their_own_fuse() -> None:
    pair = Pair(channels=16)
    (node,) = fused(pair, pair.depthwise(pair.op("LOGISTIC", pair.pointwise(activation="NONE"))))
    assert node.sources == (1, 2, 3)


def an_output(pair: Pair) -> tuple[int, ...]:
    between = pair.pointwise()
    return between, pair.depthwise(between)


def a_second_reader(pair: Pair) -> tuple[int, ...]:
    between = pair.pointwise()
    return (pair.op("ADD", between, pair.depthwise(between)),)


def an_operand(pair: Pair) -> tuple[int, ...]:
    return (pair.depthwise(pair.op("PRELU", pair.pointwise(activation="NONE"), pair.constant(pair.channels))),)


def a_larger_window(pair: Pair) -> tuple[int, ...]:
    return (pair.depthwise(pair.pointwise(side=3)),)


def many_taps(pair: Pair) -> tuple[int, ...]:
    return (pair.depthwise(pair.pointwise(), side=7),)


def a_multiplier(pair: Pair) -> tuple[int, ...]:
    return (pair.depthwise(pair.pointwise(), multiplier=2),)


@pytest.mark.parametrize("case", [an_output, a_second_reader, an_operand, a_larger_window, many_taps, a_multiplier])
def test_what_one_kernel_cannot_do_stays_apart(case: object) -> None:
    assert callable(case)
    pair = Pair()
    assert fused(pair, *case(pair)) == []


def test_lanes_past_the_last_channel_have_to_stay_zero() -> None:
    """The exponential of a zero is none, and 0 times infinity would be NaN."""
    pair = Pair(channels=22)
    assert fused(pair, pair.depthwise(pair.op("EXP", pair.pointwise(activation="NONE")))) == []


@pytest.mark.parametrize(
    "change",
    [{"storage": "float"}, {"matrix_units": False}, {"family": "cpu", "ptx": False, "matrix_units": False}],
    ids=str,
)
def test_other_devices_have_no_such_kernel(change: dict[str, object]) -> None:
    pair = Pair()
    target = replace(H200, **change)  # type: ignore[arg-type]
    assert fused(pair, pair.depthwise(pair.pointwise()), target=target) == []


def test_it_is_left_where_two_kernels_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fusion.NEXT_KERNEL, "persistent", -1e9)
    pair = Pair()
    assert fused(pair, pair.depthwise(pair.pointwise())) == []


def test_rows_that_no_local_memory_can_hold_do_not_fuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_kernels, "LOCAL_QUADS", 8)
    pair = Pair()
    assert fused(pair, pair.depthwise(pair.pointwise())) == []


def test_parts_cover_the_result_within_local_memory() -> None:
    pair = Pair(channels=100)
    plan = plan_of(pair.builder.finish([pair.depthwise(pair.pointwise())]))
    kernel, node = plan.kernels[-1].kernel, plan.kernels[-1].node
    part, *_ = fused_parts(node.attributes.window, plan.storage[node.inputs[0]], plan.storage[node.output], H200)  # type: ignore[attr-defined]
    assert part is not None
    assert part.rows * part.column_blocks * 16 * part.tiles >= 8 * 100
    assert part.scratch == kernel.scratch <= LOCAL_QUADS


@pytest.mark.parametrize(("name", "kernels"), [("mobilenet_v1_0.25_224_1_default_1", 18), ("deeplabv3_257_mv_gpu", 44)])
def test_kernels_of_real_models(name: str, kernels: int, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As planned for an H200, where the model of cycles decides. A lost fusion shows here."""
    monkeypatch.undo()
    plan = plan_of((shared / "models" / f"{name}.tflite").read_bytes())
    assert len(plan.kernels) == kernels
    assert 1 + max(levels(plan)) <= kernels
