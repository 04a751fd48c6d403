"""Reductions of a group in which sub-groups do their part."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.ops import reference
from tests.ops.case import Net
from tests.quick import RUNTIMES
from tests.support.limited_devices import PLAIN, Simulation, limited


@pytest.mark.parametrize("simulation", [Simulation(), Simulation(PLAIN)], ids=["sub-groups", "none"])
def test_groups_reduce_as_their_sub_groups_do(simulation: Simulation) -> None:
    """Sums, least and greatest numbers, and a product, for which sub-groups have no function."""
    net = Net(seed=1)
    x = net.input(net.normal((1, 1025)))
    net.output(net.op("SOFTMAX", [x], reference.softmax(x.value), {"beta": 1.0}))
    images = net.input(net.normal((1, 30, 40, 6)))
    for code, function in (("MEAN", np.mean), ("REDUCE_MAX", np.max), ("REDUCE_MIN", np.min)):
        net.output(net.op(code, [images, net.integers([1, 2])], function(images.value, (1, 2))))
    near_one = net.input(1 + net.normal((1, 30, 40, 6), 1e-3))
    net.output(net.op("REDUCE_PROD", [near_one, net.integers([1, 2])], near_one.value.prod((1, 2))))
    counts = net.input(net.rng.integers(-99, 99, (1, 30, 40, 6)).astype(np.int32))
    net.output(net.op("SUM", [counts, net.integers([1, 2])], counts.value.sum((1, 2), dtype=np.int32)))
    case = net.case()
    with limited(RUNTIMES[0], simulation):
        model = tflgpu.compile(
            case.model, tflgpu.Options(execution=tflgpu.Execution(kernels="gpu"), precision="fp32", cache="off")
        )
        assert ("sub_group_reduce_add" in model.source) == (not simulation.limits)
        case.check(model.run(case.inputs).values())
