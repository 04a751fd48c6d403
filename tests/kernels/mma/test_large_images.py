"""Kernels on matrix units whose work-groups share an image in local memory, emulated on a device that has none."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

import tflgpu
from tests.kernels.networks import convolution, depthwise
from tests.kernels.test_emulated_kernels import check_largest
from tests.ops.case import Net
from tests.ops.tolerance import ARITHMETIC
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tflgpu.compiler import plan_model
from tflgpu.kernels.mma import implicit_gemm_patch
from tflgpu.kernels.mma.implicit_gemm_multistage import GroupTile

TARGET = replace(emulated.TARGET, executor="launch", compute_units=1)


@dataclass(frozen=True)
class Patch:
    """A convolution of an image of ``shape``, the tile of a group, and how many stages of weights there are.

    late: whether copies to local memory are there only once a work-item has waited for them.
    """

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    tile: GroupTile
    stages: int
    late: bool


PATCHES = (
    Patch((3, 7, 7, 40), 70, Window((3, 3), padding="SAME"), GroupTile(2, 2, 2, 1), stages=3, late=True),
    Patch((2, 9, 8, 64), 64, Window((3, 3), padding="SAME"), GroupTile(2, 1, 2, 2), stages=2, late=False),
    Patch((2, 12, 11, 16), 33, Window((2, 3)), GroupTile(1, 2, 2, 1), stages=2, late=True),
)


@pytest.mark.usefixtures("emulation")
@pytest.mark.quick(when=lambda case: case == PATCHES[2])
@pytest.mark.parametrize("case", PATCHES, ids=str)
def test_emulated_kernels_of_patches(case: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution that a residual joins, of tiles that end in another image than they begin in."""
    monkeypatch.setattr(implicit_gemm_patch, "GROUP_TILES", (case.tile,))
    monkeypatch.setattr(implicit_gemm_patch, "STAGES", (case.stages,))
    monkeypatch.setattr(implicit_gemm_patch, "patch_cycles", lambda *_: 0.0)
    net = Net(pytest.fail, seed=5)  # it draws nothing
    x = net.input(net.normal(case.shape))
    x = net.op("MUL", [x, x], x.value * x.value, activation="NONE")  # which is stored in half
    y = convolution(net, x, case.channels, case.window, "RELU")
    z = net.input(net.normal(y.shape))
    z = net.op("MUL", [z, z], z.value * z.value, activation="NONE")
    total = net.op("ADD", [y, z], y.value + z.value, activation="NONE")
    for joined in (total, z):
        net.output(depthwise(net, joined, Window((1, 1)), "NONE"))
    model = net.case(ARITHMETIC)
    _, plan = plan_model(model.model, tflgpu.Options(), TARGET)
    (kernel,) = (k.kernel for k in plan.kernels if k.node.kind == "convolution")
    assert kernel.template == "mma/implicit_gemm_patch" and kernel.parameters["stages"] == case.stages
    got, _ = emulated.run(plan, model.inputs, late=case.late)
    check_largest(got, model.expected[0], "half")
