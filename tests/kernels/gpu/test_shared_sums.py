"""Sums that are computed in shares, and when they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from tests.kernels.gpu.reductions import reduced
from tests.kernels.networks import convolution, depthwise
from tests.ops.case import Case, Net
from tests.ops.case import Tensor as Computed
from tests.ops.windows import Window
from tests.quick import on_first_runtime
from tests.support import emulated_matrix_units as emulated
from tests.support.models import Builder
from tests.support.planning import kinds, plan_of
from tests.support.running import run_checked
from tests.support.targets import H200
from tests.support.template_cases import transpose_convolution
from tflgpu.graph.ir import Graph, Node, Tensor
from tflgpu.graph.layout import Geometry
from tflgpu.kernels.architecture import lowering_of, sharing_lowering
from tflgpu.kernels.gpu import shared_sums
from tflgpu.kernels.kernel import Storage as Stored
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.target import corrections

Storage = Literal["half", "float"]


@pytest.fixture
def in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five of every sum that can be, which divide nothing evenly."""

    def five(request: Request) -> int:
        if request.node.in_place or lowering_of(request).best is None:
            return 1
        sharing = sharing_lowering(shared := replace(request, shares=5))
        return 5 if sharing is not None and sharing.best is not None and sharing.best(shared) is not None else 1

    monkeypatch.setattr(shared_sums, "best_count", five)


def layer(net: Net, x: Computed, channels: int) -> Computed:
    depth = x.value.shape[1]
    weights, bias = net.constant(net.normal((channels, depth), depth**-0.5)), net.constant(net.normal((channels,)))
    value = x.value @ weights.value.T + bias.value
    return net.op("FULLY_CONNECTED", [x, weights, bias], value, activation="RELU", terms=depth)


def sums() -> Case:
    """Convolutions of a long and of a large window, transposed ones, a residual, a layer of rows, reductions."""
    net = Net(seed=1)
    sound = net.input(net.normal((1, 1, 60, 3)))
    sound = convolution(net, sound, 3, Window((1, 1)), "NONE")
    net.output(convolution(net, sound, 5, Window((1, 50), padding="SAME"), "RELU"))
    net.output(depthwise(net, sound, Window((1, 40), padding="SAME"), "NONE"))
    image = net.input(net.normal((2, 6, 5, 23)))
    image = convolution(net, image, 9, Window((1, 1)), "NONE")
    inner = convolution(net, image, 9, Window((3, 3), padding="SAME"), "NONE")
    net.output(net.op("ADD", [inner, image], inner.value + image.value, activation="RELU"))
    net.output(convolution(net, image, 7, Window((5, 2), (1, 2)), "NONE"))
    for code, axes in (("MEAN", (1, 2)), ("SUM", (0, 3)), ("REDUCE_MAX", (1, 2, 3)), ("REDUCE_MIN", (3,))):
        net.output(reduced(net, code, image, axes))
    net.output(layer(net, net.input(net.normal((3, 150))), 6))
    net.output(transpose_convolution(net, image))
    return net.case()


@pytest.mark.quick(when=lambda precision, device_name: precision == "fp16" and on_first_runtime(device_name))
@pytest.mark.usefixtures("in_shares")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_shares_add_up_on_work_items(precision: Literal["fp32", "fp16"], device_name: str) -> None:
    run_checked(sums(), device=device_name, kernels="gpu", precision=precision, fallback="forbid")


@pytest.mark.full("Intel's compiler takes long over emulated matrix units")
@pytest.mark.usefixtures("emulation", "in_shares")
@pytest.mark.parametrize("storage", ["half", "float"])
def test_shares_add_up_on_matrix_units(storage: Storage) -> None:
    case = sums()
    plan = plan_of(case.model, replace(emulated.TARGET, storage=storage))
    used = {k.kernel.template for k in plan.kernels if k.kernel.shares > 1}
    assert "transpose_convolution" in {k.node.attributes.node.kind for k in plan.kernels if k.node.kind == "shares"}
    assert used >= {"mma/gemm/direct", "mma/gemm/few_channels", "portable/reduce"}
    emulated.check(plan, case)


@pytest.mark.parametrize(
    ("rows", "depth", "channels", "shared"),
    [
        (1, 100_000, 1, True),
        (1, 20_000, 30, True),
        (1, 1024, 1000, False),
        (1, 16, 4096, False),
        (4096, 512, 64, False),
    ],
)
@pytest.mark.parametrize("matrix_unit", [H200.matrix_unit, None])
def test_long_sums_of_few_results_are_shared(
    rows: int, depth: int, channels: int, shared: bool, matrix_unit: str | None
) -> None:
    """Where a second launch costs less than it saves."""
    builder = Builder()
    x = builder.input((rows, depth))
    weights, bias = np.zeros((channels, depth), np.float32), np.zeros(channels, np.float32)
    y = builder.add("FULLY_CONNECTED", [x, builder.constant(weights), builder.constant(bias)], (rows, channels))
    plan = plan_of(builder.finish([y]), replace(H200, matrix_unit=matrix_unit))
    assert kinds(plan)[-2:] == ["shares", "join"] if shared else not any(k.kernel.shares > 1 for k in plan.kernels)


@pytest.mark.parametrize("depth", [2_000, 20_000])  # one kernel is the faster by the cost model, or shares are
def test_one_kernel_is_corrected_beside_the_fastest_shares(depth: int) -> None:
    shapes = (1, depth), (30, depth), (1, 30)
    tensors = {i: Tensor(i, "", shape, data=np.zeros(shape) if i == 1 else None) for i, shape in enumerate(shapes)}
    graph = Graph(tensors, (Node("fully_connected", (0, 1), 2),), (0,), (2,))
    storage = {i: Stored(Geometry(shapes[i]), "half") for i in (0, 2)}
    request = Planning(graph, H200, storage).request(graph.nodes[0])
    (_, whole), *shares = shared_sums.cycles_by_count(request).items()
    expected = corrections.Prediction("a sum in one kernel", whole, min(cycles for _, cycles in shares))
    for factor in (corrections.ALWAYS, corrections.NEVER):
        with corrections.trial({expected.kernel: factor}) as noted:
            assert (shared_sums.best_count(request) == 1) == (factor == corrections.ALWAYS)
        assert noted.predictions == [expected]


def test_sums_without_a_kernel_for_their_shares_stay_whole() -> None:
    """Shares of a transposed convolution of floats may be too little for matrix units, and nothing else has any."""
    builder = Builder()
    x = builder.add("ABS", [builder.input((1, 6, 6, 234))], (1, 6, 6, 234))
    shape, weights = np.array([1, 12, 12, 208], np.int32), np.zeros((208, 5, 5, 234), np.float32)
    options = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
    y = builder.add(
        "TRANSPOSE_CONV", [builder.constant(shape), builder.constant(weights), x], (1, 12, 12, 208), **options
    )
    plan = plan_of(builder.finish([y]), replace(H200, executor="launch", storage="float"))
    assert kinds(plan) == ["map", "transpose_convolution"]
