"""Sizes that only a run can tell, with upper bounds on the device: shapes and values are LiteRT's."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.frontend.dynamic_models import ANY, DynamicBuilder
from tests.frontend.sized_models import MODELS
from tests.support.litert import shapes_of_equal_runs
from tflgpu.options import Execution, Options

RUNS = 60


@pytest.mark.parametrize("kernels", ["auto", "gpu"])
@pytest.mark.parametrize("name", MODELS)
def test_they_run_whole_on_the_device(name: str, kernels: str, device_name: str) -> None:
    data, draw = MODELS[name]
    execution = Execution(kernels=kernels)
    options = Options(precision="fp32", device=device_name, fallback="forbid", cache="off", execution=execution)
    model = tflgpu.compile(data, options)
    assert len(set(shapes_of_equal_runs(model, data, draw, RUNS))) > 2


def test_large_bounds_are_left_to_the_cpu(device_name: str) -> None:
    """The device would compute all of a mask, of which LiteRT computes what is left; unless it must be the device."""
    builder, count = DynamicBuilder(), 300
    x = builder.input((count, 512), name="x")
    best = builder.add("REDUCE_MAX", [x, builder.ints([1])], (count,), keep_dims=False)
    mask = builder.add("GREATER", [best, builder.constant(np.float32(3))], (count,), dtype="bool")
    where = builder.add("WHERE", [mask], (ANY, 1), dtype="int64")
    places = builder.add("SQUEEZE", [where], (ANY,), "int64", squeeze_dims=[1])
    data = builder.finish([builder.add("GATHER", [x, places], (ANY, 512))])
    report = tflgpu.inspect(data)
    assert [o.code for o in report.operators if o.reasons] == ["WHERE", "SQUEEZE", "GATHER"]
    assert not any(o.reasons for o in tflgpu.inspect(data, Options(fallback="forbid")).operators)
