"""Products of many rows on tensor cores, emulated on a device that has none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.networks import binary
from tests.ops.case import Case, Net
from tests.support import emulated_matrix_units as emulated
from tests.support.emulated_matrix_units import check_largest
from tests.support.planning import plan_of, templates
from tflgpu.kernels.demand import Demand
from tflgpu.kernels.mma.costs import MultistageWork
from tflgpu.kernels.mma.gemm import row_major
from tflgpu.kernels.mma.gemm.k_tiles import GroupTile
from tflgpu.kernels.mma.gemm.row_major import RowMajorTile
from tflgpu.plan import Plan

# Rows, inputs and outputs in whole tiles and not; fewer iterations than stages or sets, and more.
CASES = (
    ((70, 40, 50), RowMajorTile(GroupTile(2, 4, 2, 1), 1, 4, 3)),
    ((130, 136, 260), RowMajorTile(GroupTile(1, 8, 4, 1), 2, 3, 2)),
    ((33, 200, 70), RowMajorTile(GroupTile(4, 2, 1, 2), 4, 2, 2)),
    ((50, 16, 32), RowMajorTile(GroupTile(2, 4, 3, 1), 2, 2, 4)),
)


def planned(shape: tuple[int, int, int], tile: RowMajorTile, monkeypatch: pytest.MonkeyPatch) -> tuple[Case, Plan]:
    """A fully connected layer that a residual joins."""
    monkeypatch.setattr(row_major, "_tiles", lambda *_: iter((tile,)))
    monkeypatch.setattr(MultistageWork, "demand", lambda *_: Demand(1, (), 0.0))
    rows, inputs, outputs = shape
    net = Net(seed=rows)
    x = net.input(net.normal((rows, inputs)))
    x = net.op("ABS", [x], abs(x.value))
    weights = net.normal((outputs, inputs)) / np.float32(np.sqrt(inputs))
    y = net.op("FULLY_CONNECTED", [x, net.constant(weights)], x.value @ weights.T)
    z = net.input(net.normal((rows, outputs)))
    net.output(binary(net, "ADD", y, z))
    case = net.case()
    plan = plan_of(case.model, emulated.TARGET)
    assert "mma/gemm/row_major" in templates(plan)
    return case, plan


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("shape, tile", CASES, ids=str)
def test_of_rows_and_weights_in_several_stages(
    shape: tuple[int, int, int], tile: RowMajorTile, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, plan = planned(shape, tile, monkeypatch)
    check_largest(emulated.run(plan, case.inputs, late=shape[0] != 50)[0], case.expected[0], "half")


@pytest.mark.usefixtures("emulation")
def test_one_group_computes_one_tile_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """No work-item of a tile writes to local memory what another one still reads of the tile before."""
    case, plan = planned(*CASES[0], monkeypatch)
    check_largest(emulated.run_persistent(plan, case.inputs)[0], case.expected[0], "half")
