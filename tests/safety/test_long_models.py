"""Models of many operators: what is compiled for them grows with their number, and no kernel is larger for it."""

from __future__ import annotations

import numpy as np

import tflgpu
from tflgpu.compiler import plan_model
from tflgpu.model.writer import ModelBuilder
from tflgpu.options import Options
from tflgpu.passes.fuse import MAX_EPILOGUE
from tflgpu.target import Target

SHAPE = (1, 4, 4, 4)
CPU = Target(family="cpu", compute_units=2, storage="float")


def chain(*codes: str) -> bytes:
    """Elementwise operators one behind the other."""
    builder = ModelBuilder()
    x = builder.input(SHAPE)
    for code in codes:
        y = builder.tensor(SHAPE)
        builder.op(code, [x, x] if code == "ADD" else [x], [y])
        x = y
    return builder.finish([x])


def test_a_long_chain_is_several_equal_kernels(device_name: str) -> None:
    count = 600
    model = tflgpu.compile(chain(*["ABS"] * count), Options(device=device_name, fallback="forbid"))
    assert model.report.kernels == -(-count // MAX_EPILOGUE)
    assert model.source.count("__kernel") <= 3  # the first, those between, and the last
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    (y,) = model.run(x).values()
    np.testing.assert_array_equal(y, np.abs(x))


def test_no_epilogue_is_longer_for_shared_sources() -> None:
    """``x + x`` reads its source twice, and LOGISTIC and MUL of one tensor become one node."""
    _, plan = plan_model(chain(*["ADD", "LOGISTIC"] * 40), Options(), CPU)
    assert max(len(kernel.epilogue) for kernel in plan.kernels) == MAX_EPILOGUE
