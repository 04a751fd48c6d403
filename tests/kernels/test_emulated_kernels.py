"""Whole kernels for matrix units, emulated on a device that has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.kernels.gpu.ways import take_always
from tests.kernels.networks import convolution, depthwise, joined_convolution
from tests.ops.case import Net, Tensor
from tests.ops.tolerance import ARITHMETIC, check
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tests.support.corrections import ALWAYS, correct
from tests.support.emulated_matrix_units import Storage, check_largest
from tests.support.planning import plan_of, taking, templates
from tflgpu.kernels.mma.gemm.k_tiles import GroupTile, MultistageTile
from tflgpu.target import Limits


def in_storages(cases: Sequence[object], in_float: Sequence[object]) -> list[tuple[object, Storage]]:
    return [*((case, "half") for case in cases), *((case, "float") for case in in_float)]


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
    Division((1, 9, 8, 24), 13, Window((3, 3), padding="SAME"), tile=(4, 1, 1), pair=(3, 1, 1)),
)


def network(net: Net, case: Division) -> Tensor:
    """A pointwise convolution, one that joins the depthwise one behind it, and a dense one that a residual joins."""
    depth, window = case.shape[3], case.window
    x = convolution(net, net.input(net.normal(case.shape)), depth, Window((1, 1)), "NONE")
    x = convolution(net, x, case.channels, Window((1, 1)), "RELU6")
    x = depthwise(net, x, window, "RELU")
    y = convolution(net, x, case.channels, Window((3, 3), padding="SAME"), "NONE")
    return net.op("ADD", [x, y], x.value + y.value, activation="NONE")


@pytest.mark.usefixtures("emulation")
@pytest.mark.quick(when=lambda case, storage: case == DIVISIONS[2] and storage == "half")
@pytest.mark.parametrize(("case", "storage"), in_storages(DIVISIONS, DIVISIONS[2:3]), ids=str)
def test_emulated_kernels_give_the_right_result(
    case: Division, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text that a GPU gets, for every way to divide the work, and the same of a pair as of its two kernels."""
    take_always(monkeypatch)  # no way
    correct(monkeypatch, {"a sum in one kernel": ALWAYS})
    net = Net(seed=1)
    net.output(network(net, case))
    model = net.case()
    results = []
    for pair, count, compute_units in (({"pointwise_depthwise"}, 4, 1000), (set(), 5, 1)):
        target = replace(emulated.TARGET, storage=storage, compute_units=compute_units)
        choose = taking(pair, convolution=case.tile, pointwise_depthwise=case.pair)
        plan = plan_of(model.model, target, choose=choose)
        assert len(plan.kernels) == count
        fused = [k for k in plan.kernels if k.kernel.template == "mma/pointwise_depthwise"]
        assert len(fused) == 5 - count
        (got,) = emulated.run(plan, model.inputs)
        check_largest(got, model.expected[0], storage)
        results.append(got)
    check_largest(*results, storage)


@pytest.mark.full("Intel's compiler takes ten seconds for it")
@pytest.mark.usefixtures("emulation")
def test_emulated_persistent_kernel_gives_the_right_result() -> None:
    net = Net(seed=1)
    net.output(network(net, DIVISIONS[1]))
    model = net.case()
    plan = plan_of(model.model, emulated.TARGET)
    check_largest(emulated.run_persistent(plan, model.inputs)[0], model.expected[0], "half")


@dataclass(frozen=True)
class Pairs:
    """A depthwise convolution of an image of ``shape`` that joins a pointwise one.

    tile: blocks of rows, blocks of columns, warp tiles side by side, and split-K. slices: of the
    depthwise result, for which local memory has room in half and in float. columns: pixels side by side that a
    work-item computes in half.
    """

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    tile: tuple[int, int, int, int]
    slices: tuple[int, int]
    columns: int


PAIRS = (
    Pairs((1, 5, 4, 20), 24, Window((3, 3), padding="SAME"), (1, 1, 1, 1), slices=(16, 16), columns=1),
    Pairs((2, 9, 7, 80), 64, Window((3, 3), (2, 2), padding="SAME"), (2, 2, 2, 1), (32, 24), columns=2),
    Pairs((2, 4, 3, 128), 33, Window((2, 3), dilation=(2, 1)), (1, 1, 1, 4), (32, 32), columns=1),
    Pairs((1, 6, 14, 64), 80, Window((5, 5), padding="SAME"), (8, 1, 4, 1), (16, 16), columns=2),
    Pairs((2, 6, 6, 128), 40, Window((3, 3), padding="SAME"), (1, 1, 1, 4), (32, 32), columns=2),
)


@pytest.mark.usefixtures("emulation")
@pytest.mark.quick(when=lambda case, storage: case == PAIRS[1] and storage == "half")
@pytest.mark.parametrize(("case", "storage"), in_storages(PAIRS, [replace(PAIRS[3], tile=(4, 1, 4, 1))]), ids=str)
def test_emulated_pairs_give_the_right_result(case: Pairs, storage: Storage) -> None:
    """The same of a depthwise convolution within the pointwise one after it."""
    net = Net(seed=1)
    image = convolution(net, net.input(net.normal(case.shape)), case.shape[3], Window((1, 1)), "NONE")
    x = convolution(net, depthwise(net, image, case.window, "RELU6"), case.channels, Window((1, 1)), "RELU")
    net.output(net.op("ABS", [x], np.abs(x.value)))  # an output itself would be stored in float
    model = net.case()
    choose = taking({"depthwise_pointwise"}, depthwise_pointwise=case.tile)
    plan = plan_of(model.model, replace(emulated.TARGET, storage=storage), choose=choose)
    kernels = {k.kernel.template: k.kernel for k in plan.kernels}
    parameters, is_half = vars(kernels["mma/depthwise_pointwise"].parameters), storage == "half"
    assert parameters["slices"] == case.slices[0 if is_half else 1]
    assert parameters["columns"] == (case.columns if is_half else 1)
    emulated.check(plan, model)


@dataclass(frozen=True)
class FewChannels:
    """Two convolutions of few channels, the first of the host's image, and the tile that a warp computes of each.

    double_buffered: whether it loads k-steps while it multiplies others.
    """

    shape: tuple[int, int, int, int]
    between: int
    window: Window
    tile: tuple[int, int, int]
    double_buffered: bool


FEW_CHANNELS = (
    FewChannels((1, 13, 11, 1), 3, Window((7, 7), (2, 2), padding="SAME"), tile=(1, 2, 4), double_buffered=False),
    FewChannels((2, 25, 24, 2), 1, Window((2, 3), dilation=(2, 1)), tile=(2, 1, 1), double_buffered=True),
    FewChannels((3, 8, 9, 3), 4, Window((3, 3), padding="SAME"), tile=(1, 1, 2), double_buffered=True),
    FewChannels((2, 5, 6, 4), 2, Window((1, 1)), tile=(2, 2, 1), double_buffered=False),
)


@pytest.mark.usefixtures("emulation")
@pytest.mark.quick(when=lambda case, storage: case in FEW_CHANNELS[:1] and storage == "half")
@pytest.mark.parametrize(("case", "storage"), in_storages(FEW_CHANNELS, FEW_CHANNELS[1:3]), ids=str)
def test_emulated_kernels_of_few_channels(case: FewChannels, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's image and one that was computed. A NaN in the first pixel reaches its windows only."""
    correct(monkeypatch, {"mma/gemm of floats": ALWAYS})
    net = Net(seed=2)
    image = net.normal(case.shape)
    image[0, 0, 0] = np.nan
    x = convolution(net, net.input(image), case.between, case.window, "NONE")
    y = convolution(net, x, 20, case.window, "NONE")
    net.output(y)
    target = replace(emulated.TARGET, storage=storage, compute_units=1 if case.double_buffered else 1000)
    plan = plan_of(net.case().model, target, choose=taking(convolution=case.tile))
    assert templates(plan) == ["mma/gemm/few_channels"] * 2
    for planned in plan.kernels:
        assert vars(planned.kernel.parameters)["double_buffered"] == case.double_buffered
    (got,) = emulated.run(plan, [image])
    assert np.isfinite(y.value).any() and np.isnan(y.value).any()
    check_largest(got, y.value, storage)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("depth", [3, 20])
def test_a_pointwise_convolution_with_padding(depth: int) -> None:
    """A window of one tap that may be outside the image: where it is, the result is the bias."""
    net = Net(seed=4)
    image = net.normal((1, 4, 5, depth))
    x = net.input(image)
    x = net.op("ABS", [x], abs(x.value))
    border = ((0, 0), (1, 2), (0, 1), (0, 0))
    x = net.op("PAD", [x, net.integers(border)], np.pad(x.value, border))
    net.output(y := convolution(net, x, 20, Window((1, 1), (2, 1)), "NONE"))
    plan = plan_of(net.case().model, emulated.TARGET)
    loader = "mma/gemm/direct" if depth > 4 else "mma/gemm/few_channels"
    assert len(plan.kernels) == 2 and plan.kernels[1].kernel.template == loader
    check(emulated.run(plan, [image])[0], y.value, replace(ARITHMETIC, fp16=2e-3), "fp16")


@dataclass(frozen=True)
class Multistage:
    """A convolution of an image of ``shape``, the tile of a group, and for how many stages there is local memory.

    late: whether operands are there only once a work-item has waited for them.
    """

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    tile: GroupTile
    stages: int
    late: bool


STRIDED = Window((3, 3), (2, 2), padding="SAME")
DILATED = Window((2, 3), dilation=(2, 1))
MULTISTAGE = (
    Multistage((2, 9, 8, 40), 50, Window((1, 1)), GroupTile(2, 2, 2, 1), stages=3, late=True),
    Multistage((1, 12, 12, 100), 70, Window((1, 1)), GroupTile(2, 2, 4, 1), stages=2, late=False),
    Multistage((3, 7, 7, 16), 130, Window((1, 1)), GroupTile(2, 2, 2, 2), stages=3, late=True),
    Multistage((2, 9, 7, 40), 50, STRIDED, GroupTile(2, 2, 2, 1), stages=2, late=False),
    Multistage((2, 13, 24, 36), 64, Window((3, 3), (1, 2), padding="SAME"), GroupTile(4, 1, 2, 2), stages=3, late=True),
    Multistage((3, 8, 9, 20), 96, DILATED, GroupTile(2, 2, 2, 1), stages=2, late=True),
    Multistage((2, 9, 9, 64), 133, Window((1, 1), (2, 2)), GroupTile(2, 2, 4, 2), stages=2, late=False),
)


@pytest.mark.usefixtures("emulation")
@pytest.mark.quick(when=lambda case: case in (MULTISTAGE[0], MULTISTAGE[3]))
@pytest.mark.parametrize("case", MULTISTAGE, ids=str)
def test_emulated_multistage_kernels(case: Multistage) -> None:
    """A convolution that a residual joins, through local memory. What reads the sum has it in half."""
    net = Net(seed=5)
    joined_convolution(net, case.shape, case.channels, case.window)
    model = net.case()
    tile = MultistageTile(case.tile, 2, case.stages)
    limits = Limits(local_bytes=tile.local_bytes)
    target = replace(emulated.TARGET, executor="launch", compute_units=1, limits=limits)
    plan = plan_of(model.model, target, choose=taking((), convolution=tile.config))
    (convolved,) = (k for k in plan.kernels if k.node.kind == "convolution")
    kernel = convolved.kernel
    assert kernel.template == "mma/gemm/k_tiles" and vars(kernel.parameters)["stages"] == case.stages
    assert [op.function for op in convolved.epilogue] == ["relu", "add"]
    got, _ = emulated.run(plan, model.inputs, late=case.late)
    check(got, model.expected[0], replace(model.tolerance, fp16=2e-3), "fp16", model.describe)
