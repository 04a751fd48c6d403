"""Products of many rows on tensor cores, emulated on a device that has none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.networks import binary
from tests.ops.case import Case, Net
from tests.support import emulated_matrix_units as emulated
from tests.support.emulated_matrix_units import check_largest
from tests.support.planning import plan_of, taking, templates
from tflgpu.plan import Plan

# Rows, inputs and outputs in whole tiles and not; fewer iterations than stages or sets, and more. The tile of a group:
# warps one below the other and side by side, blocks of each, k-steps of a stage, stages, and sets of weights.
CASES = (
    ((70, 40, 50), (2, 4, 2, 1, 2, 6, 4)),
    ((130, 136, 260), (1, 8, 4, 1, 2, 6, 2)),
    ((33, 200, 70), (1, 8, 1, 2, 2, 6, 2)),
    ((50, 16, 32), (2, 4, 3, 1, 2, 6, 4)),
)


def planned(shape: tuple[int, int, int], tile: tuple[int, ...]) -> tuple[Case, Plan]:
    """A fully connected layer that a residual joins."""
    rows, inputs, outputs = shape
    net = Net(seed=rows)
    x = net.input(net.normal((rows, inputs)))
    x = net.op("ABS", [x], abs(x.value))
    weights = net.normal((outputs, inputs)) / np.float32(np.sqrt(inputs))
    y = net.op("FULLY_CONNECTED", [x, net.constant(weights)], x.value @ weights.T)
    z = net.input(net.normal((rows, outputs)))
    net.output(binary(net, "ADD", y, z))
    case = net.case()
    plan = plan_of(case.model, emulated.TARGET, choose=taking(fully_connected=tile))
    assert "mma/gemm/row_major" in templates(plan)
    return case, plan


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("shape, tile", CASES, ids=str)
def test_of_rows_and_weights_in_several_stages(shape: tuple[int, int, int], tile: tuple[int, ...]) -> None:
    case, plan = planned(shape, tile)
    check_largest(emulated.run(plan, case.inputs, late=shape[0] != 50)[0], case.expected[0], "half")


@pytest.mark.usefixtures("emulation")
def test_one_group_computes_one_tile_after_another() -> None:
    """No work-item of a tile writes to local memory what another one still reads of the tile before."""
    case, plan = planned(*CASES[0])
    check_largest(emulated.run_persistent(plan, case.inputs)[0], case.expected[0], "half")
