"""Which activations CPUs store on their grids, and on which."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.models import Builder
from tests.support.planning import kinds, plan_of
from tests.support.targets import CPU, GPU
from tflgpu.kernels.kernel import Grid
from tflgpu.model.tensor_info import Quantization
from tflgpu.plan import Plan

SHAPE = (1, 3, 5, 8)
GRID = Quantization([0.25], [-7])


def inner_grids(plan: Plan) -> list[Grid | None]:
    """The grids of the tensors that kernels write for other kernels, in order."""
    return [plan.storage[k.node.output].grid for k in plan.kernels if k.node.output not in plan.graph.outputs]


def model(code: str = "", dtype: str = "int8", grid: Quantization = GRID, **options: object) -> bytes:
    """A softmax of what an operator, if any, computes of integers on a grid, themselves those of a softmax."""
    builder = Builder()
    x = builder.input(SHAPE, dtype, quantization=grid)
    x = builder.add("SOFTMAX", [x], SHAPE, dtype, quantization=grid, beta=1.0)
    if code:
        x = builder.add(code, [x], SHAPE, dtype, quantization=grid, **options)
    return builder.finish([builder.add("SOFTMAX", [x], SHAPE, dtype, quantization=grid, beta=1.0)])


@pytest.mark.parametrize("storage", ["float", "half"])
@pytest.mark.parametrize(("dtype", "zero", "stored"), [("int8", -7, 121), ("uint8", 200, 200)])
def test_integers_are_stored_from_0_on(dtype: str, zero: int, stored: int, storage: str) -> None:
    plan = plan_of(model(dtype=dtype, grid=Quantization([0.25], [zero])), replace(CPU, storage=storage))
    assert set(inner_grids(plan)) == {Grid(0.25, stored)}
    assert all(plan.storage[t].grid is None for t in (*plan.graph.inputs, *plan.graph.outputs))


def test_gpus_store_floats() -> None:
    assert set(inner_grids(plan_of(model(), GPU))) == {None}


def test_16_bits_stay_floats() -> None:
    assert set(inner_grids(plan_of(model(dtype="int16", grid=Quantization([0.25], [0])), CPU))) == {None}


@pytest.mark.parametrize(("scale", "zero"), [(0.0, 0), (3e38, 0), (0.25, 300)])
def test_a_grid_without_a_zero_or_beyond_floats_stays_floats(scale: float, zero: int) -> None:
    """A scale of 0 is the least normal number."""
    grids = set(inner_grids(plan_of(model(grid=Quantization([scale], [zero])), CPU)))
    assert (grids == {None}) == (scale != 0)


def test_what_is_moved_stays_on_its_grid() -> None:
    plan = plan_of(model("MAX_POOL_2D", padding="SAME", filter_height=3, filter_width=3, stride_h=1, stride_w=1), CPU)
    assert "pool" in kinds(plan)
    assert set(inner_grids(plan)) == {Grid(0.25, 121)}


def test_a_rounding_to_the_same_grid_is_none() -> None:
    """So inputs of a concatenation are computed in its result."""
    builder = Builder()
    x = builder.input(SHAPE, "int8", quantization=GRID)
    parts = [builder.add("SOFTMAX", [x], SHAPE, "int8", quantization=GRID, beta=float(n)) for n in (1, 2)]
    y = builder.add("CONCATENATION", parts, (1, 3, 5, 16), "int8", quantization=GRID, axis=3)
    plan = plan_of(
        builder.finish([builder.add("SOFTMAX", [y], (1, 3, 5, 16), "int8", quantization=GRID, beta=1.0)]), CPU
    )
    assert "concatenate" not in kinds(plan)


def test_kernels_that_take_no_integers_read_floats() -> None:
    """Running sums have not said that they take them."""
    builder = Builder()
    x = builder.input(SHAPE, "int8", quantization=GRID)
    x = builder.add("SOFTMAX", [x], SHAPE, "int8", quantization=GRID, beta=1.0)
    x = builder.add("DEQUANTIZE", [x], SHAPE)
    y = builder.add("CUMSUM", [x, builder.ints(3)])
    plan = plan_of(builder.finish([y]), CPU)
    (sums,) = (k.node for k in plan.kernels if k.node.kind == "cumulative_sum")
    assert plan.storage[sums.inputs[0]].type == "float"


def test_the_limits_of_an_activation_stay() -> None:
    """A RELU of integers rounds to the grid that they are on, and to a part of it."""
    builder = Builder()
    x = builder.input(SHAPE, "int8", quantization=GRID)
    x = builder.add("SOFTMAX", [x], SHAPE, "int8", quantization=GRID, beta=1.0)
    y = builder.add("RELU", [x], SHAPE, "int8", quantization=GRID)
    outputs = [builder.add("SOFTMAX", [t], SHAPE, "int8", quantization=GRID, beta=1.0) for t in (x, y)]
    plan = plan_of(builder.finish(outputs), CPU)
    limits = [op.parameters[1:] for k in plan.kernels for op in k.epilogue if op.function == "round_to_grid"]
    assert limits.count((121.0, 121.0, 255.0)) == 1
