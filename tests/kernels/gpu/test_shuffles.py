"""Reductions whose work-items exchange values within warps, emulated on a device that has sub-groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.ops.case import Net
from tests.support import emulated_matrix_units as emulated
from tests.support.planning import plan_of
from tflgpu.codegen.render import render

TARGET = replace(emulated.PORTABLE, storage="float", ptx=True)


@pytest.mark.usefixtures("emulation")
def test_warps_reduce_what_their_work_items_share() -> None:
    """Groups that share one item or several, more and fewer sharers than a warp has, and slices that one has alone."""
    net = Net(seed=6)
    for shape, axes in (((1, 9, 8, 1024), (1, 2)), ((2, 31, 17, 7), (1, 2)), ((3, 5, 6, 400), (1, 2, 3))):
        x = net.input(net.normal(shape))
        for code, value in (("MEAN", x.value.mean(axes)), ("REDUCE_MAX", x.value.max(axes))):
            net.output(net.op(code, [x, net.integers(axes)], value, {"keep_dims": False}))
    counts = net.input(net.rng.integers(-9, 9, (2, 2000)).astype(np.int32))
    net.output(net.op("SUM", [counts, net.integers((1,))], counts.value.sum(1, dtype=np.int32), {"keep_dims": False}))
    for shape in ((1, 1001), (3, 130), (1, 2, 9000), (40, 37)):
        x = net.input(net.normal(shape, 5.0))
        powers = np.exp(x.value - x.value.max(-1, keepdims=True))
        net.output(net.op("SOFTMAX", [x], powers / powers.sum(-1, keepdims=True), {"beta": 1.0}))
    case = net.case()
    plan = plan_of(case.model, TARGET)
    assert render(plan).text.count("shuffled_uint4(") > 40
    for got, expected in zip(emulated.run(plan, case.inputs), case.expected, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
