"""Kernels on matrix units whose work-groups share an image in local memory, emulated on a device that has none."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.kernels.gpu.ways import take_always
from tests.kernels.networks import convolution, depthwise, joined_convolution
from tests.ops.case import Net
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tests.support.emulated_matrix_units import check_largest
from tests.support.planning import plan_of, taking
from tflgpu.kernels.mma.gemm.k_tiles import GroupTile
from tflgpu.target import Limits

TARGET = replace(emulated.TARGET, executor="launch", compute_units=1)


@dataclass(frozen=True)
class Rows:
    """A convolution of the host's image of ``shape``, and the same of another one, by rows of images in local memory.

    groups: of eight pixels, and blocks of channels, that a warp computes.
    """

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    groups: tuple[int, int]


ROWS = (
    Rows((1, 13, 15, 3), 20, Window((7, 7), (2, 2), padding="SAME"), (1, 1)),
    Rows((2, 12, 17, 4), 33, Window((2, 3), dilation=(2, 1)), (2, 2)),
    Rows((1, 9, 250, 1), 70, Window((2, 8), (1, 2), padding="SAME"), (4, 2)),
)


@pytest.mark.usefixtures("emulation")
@pytest.mark.quick(when=lambda case: case == ROWS[1])
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_emulated_kernels_of_rows(case: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results with and without an epilogue. A NaN reaches its windows only."""
    take_always(monkeypatch)  # no way
    net = Net(seed=3)
    image = net.normal(case.shape)
    image[0, 4, 5] = np.nan
    x = net.input(image)
    y = convolution(net, x, case.channels, case.window, "RELU")
    net.output(depthwise(net, y, Window((1, 1)), "NONE"))
    x = net.op("ABS", [x], abs(x.value))
    z = convolution(net, x, case.channels, case.window, "NONE")
    z = net.op("ADD", [z, y], z.value + y.value, activation="NONE")
    net.output(net.op("ABS", [z], np.abs(z.value)))
    model = net.case()
    plan = plan_of(model.model, TARGET)
    by_rows = [vars(k.kernel.parameters) for k in plan.kernels if k.kernel.template == "mma/gemm/rows"]
    assert [(p["groups"], p["column_blocks"]) for p in by_rows] == [case.groups] * 2
    for got, expected in zip(emulated.run(plan, model.inputs), model.expected, strict=True):
        assert np.isfinite(expected).any() and np.isnan(expected).any()
        check_largest(got, expected, "half")


@dataclass(frozen=True)
class Patch:
    """A convolution of an image of ``shape``, the tile of a group, and the stages of weights in ``kib`` KiB of local
    memory.

    late: whether copies to local memory are there only once a work-item has waited for them.
    """

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    tile: GroupTile
    stages: int
    kib: int
    late: bool


PATCHES = (
    Patch((3, 7, 7, 40), 70, Window((3, 3), padding="SAME"), GroupTile(2, 1, 4, 2), stages=3, kib=48, late=True),
    Patch((2, 9, 8, 64), 64, Window((3, 3), padding="SAME"), GroupTile(2, 1, 3, 2), stages=2, kib=27, late=False),
    Patch((2, 12, 11, 16), 133, Window((2, 3)), GroupTile(2, 2, 4, 2), stages=2, kib=48, late=True),
    Patch((6, 5, 6, 32), 40, Window((4, 2), padding="SAME"), GroupTile(4, 1, 2, 2), stages=2, kib=27, late=True),
)


@pytest.mark.usefixtures("emulation")
@pytest.mark.quick(when=lambda case: case == PATCHES[2])
@pytest.mark.parametrize("case", PATCHES, ids=str)
def test_emulated_kernels_of_patches(case: Patch) -> None:
    """A convolution that a residual joins, of tiles that end in another image than they begin in."""
    net = Net(seed=5)
    joined_convolution(net, case.shape, case.channels, case.window)
    model = net.case()
    target = replace(TARGET, limits=Limits(local_bytes=case.kib << 10))
    choose = taking(convolution=(*case.tile.config, case.stages))
    plan = plan_of(model.model, target, choose=choose)
    (kernel,) = (k.kernel for k in plan.kernels if k.node.kind == "convolution")
    assert kernel.template == "mma/gemm/patch" and vars(kernel.parameters)["stages"] == case.stages
    got, _ = emulated.run(plan, model.inputs, late=case.late)
    check_largest(got, model.expected[0], "half")
