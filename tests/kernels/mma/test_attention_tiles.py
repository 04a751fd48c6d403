"""Attention on tensor cores, emulated on a device that has none."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.kernels.networks import binary
from tests.ops.case import Case, Net
from tests.support import emulated_matrix_units as emulated
from tests.support.corrections import divide_keys
from tests.support.planning import plan_of, taking, templates
from tests.support.row_cases import Heads, attention, attention_of_images, attention_of_projections, computed
from tflgpu.kernels.mma.attention_kernel import AttentionTile
from tflgpu.plan import Plan

TEMPLATE = "mma/attention_tiles"

# Rows and keys in whole tiles and not, one block of keys and several, vec4s side by side and in planes, and masks of
# keys, of rows too, and of neither. The tile of eight warps.
CASES = (
    (Heads((2, 3), 16, 32, 16, 16, (2, 1, 1, 32)), AttentionTile(8, 1, 1, 1)),
    (Heads((3,), 70, 130, 64, 32, ()), AttentionTile(2, 4, 2, 1, 1)),
    (Heads((1,), 40, 301, 12, 20, (40, 301)), AttentionTile(1, 8, 2, 1)),
    (Heads((1, 2), 17, 50, 8, 4, (1, 1, 1, 50)), AttentionTile(4, 2, 1, 2, 1)),
    (Heads((2,), 33, 65, 72, 80, ()), AttentionTile(4, 2, 1, 1)),
    (Heads((1,), 20, 19, 256, 256, (1, 20, 19)), AttentionTile(8, 1, 1, 1)),
    (Heads((1,), 5, 3, 32, 128, (1, 5, 3)), AttentionTile(4, 2, 1, 1)),
)


def planned(net: Net, tile: AttentionTile) -> tuple[Case, Plan]:
    case = net.case()
    options = tflgpu.Options(precision="fp16")
    plan = plan_of(case.model, emulated.TARGET, options, taking(attention=tile.config))
    assert TEMPLATE in [kernel.kernel.template for kernel in plan.kernels]
    return case, plan


def assert_close(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=5e-3 * np.abs(other).max())


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("heads, tile", CASES, ids=str)
def test_of_tensors_with_an_axis_of_heads(heads: Heads, tile: AttentionTile) -> None:
    net = Net(seed=heads.rows)
    y = attention(net, heads, *(computed(net, shape) for shape in heads.shapes))
    net.output(binary(net, "ADD", y, net.input(net.normal(y.shape))))
    case, plan = planned(net, tile)
    assert_close(emulated.run(plan, case.inputs), case.expected)


@pytest.mark.usefixtures("emulation")
def test_of_heads_that_are_channels_of_an_image() -> None:
    net = Net(seed=1)
    net.output(attention_of_images(net, Heads((2, 2), 33, 33, 12, 12, ())))
    case, plan = planned(net, AttentionTile(4, 2, 1, 1))
    assert not any("strided" in kernel.kernel.template for kernel in plan.kernels)
    assert_close(emulated.run(plan, case.inputs), case.expected)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("depth", [8, 12, 32, 48])
def test_of_heads_that_are_parts_of_rows(depth: int) -> None:
    """Copies are of 16 bytes where rows are aligned so."""
    net = Net(seed=depth)
    net.output(attention_of_projections(net, Heads((2, 3), 37, 37, depth, depth, (2, 1, 1, 37))))
    case, plan = planned(net, AttentionTile(2, 4, 1, 1))
    assert_close(emulated.run(plan, case.inputs, late=depth == 8), case.expected)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("case, parts", [(CASES[2], 3), ((CASES[3][0], AttentionTile(4, 2, 1, 1, 1)), 2)], ids=str)
def test_of_keys_that_work_groups_divide(
    case: tuple[Heads, AttentionTile], parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second kernel joins the results. One part may have fewer keys."""
    divide_keys(monkeypatch, parts)
    heads, tile = case
    net = Net(seed=heads.rows)
    y = attention(net, heads, *(computed(net, shape) for shape in heads.shapes))
    net.output(binary(net, "ADD", y, net.input(net.normal(y.shape))))
    model, plan = planned(net, tile)
    assert "rows/join_attention" in templates(plan)
    assert_close(emulated.run(plan, model.inputs), model.expected)


@pytest.mark.quick(when=lambda stages: stages == 2)
@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("stages", [1, 2])
def test_one_group_computes_one_tile_after_another(stages: int) -> None:
    """No work-item of a tile writes to local memory what another one still reads of the tile before."""
    net = Net(seed=1)
    net.output(attention(net, Heads((2,), 40, 70, 8, 8, ()), *(computed(net, (2, rows, 8)) for rows in (40, 70, 70))))
    case, plan = planned(net, AttentionTile(2, 4, 1, 1, stages))
    assert_close(emulated.run_persistent(plan, case.inputs), case.expected)
