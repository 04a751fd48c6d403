"""Depthwise convolutions as products of diagonal matrices, emulated on a device that has no matrix units."""

from __future__ import annotations

import pytest

from tests.kernels.networks import convolution, depthwise
from tests.ops.case import Net
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tests.support.planning import plan_of, taking, templates

# Batch, height, width and channels of an image, a window, the pixels of a lane's columns, and the slices of a warp.
CASES = (
    ((2, 9, 7, 20), Window((3, 3), padding="SAME"), 4, 4),
    ((1, 8, 17, 36), Window((3, 3), (2, 2), padding="SAME"), 4, 1),
    ((3, 7, 7, 13), Window((5, 5), padding="SAME"), 2, 4),
    ((1, 11, 5, 64), Window((5, 5), (2, 2), padding="SAME"), 4, 4),
    ((2, 9, 8, 6), Window((2, 3), dilation=(2, 1)), 2, 1),
    ((1, 8, 12, 8), Window((5, 5), (2, 2), padding="SAME"), 2, 1),
    ((1, 8, 12, 20), Window((3, 3), padding="SAME"), 4, 1),
    ((1, 6, 19, 16), Window((4, 1), padding="SAME"), 1, 1),
)


@pytest.mark.quick(when=lambda shape, window, pixels, warp_slices: shape in (CASES[0][0], CASES[5][0]))
@pytest.mark.parametrize(("shape", "window", "pixels", "warp_slices"), CASES, ids=str)
def test_a_result_is_that_of_numpy(
    shape: tuple[int, int, int, int], window: Window, pixels: int, warp_slices: int
) -> None:
    net = Net(seed=sum(shape))  # it draws nothing
    x = convolution(net, net.input(net.normal(shape)), shape[3], Window((1, 1)), "NONE")
    y = depthwise(net, x, window, "RELU6")
    net.output(convolution(net, y, 5, Window((1, 1)), "NONE"))
    case = net.case()
    plan = plan_of(case.model, emulated.TARGET, choose=taking((), depthwise=(pixels, warp_slices)))
    assert "mma/diagonal_depthwise" in templates(plan)
    emulated.check(plan, case)
