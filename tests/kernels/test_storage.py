"""In which element type each tensor lies on the device, and which of them half precision leaves alone."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support.models import Builder
from tests.support.planning import plan_of, templates
from tests.support.targets import CPU, GPU
from tflgpu.codegen.render import prelude
from tflgpu.model.tensor_info import Quantization
from tflgpu.plan import Plan
from tflgpu.target import Target

HALF = Target(family="gpu", compute_units=1, storage="half")
SHAPE = (1, 3, 5, 6)  # not the same bytes in the host's order and on the device


def halves(builder: Builder, output: int) -> Plan:
    return plan_of(builder.finish([output]), HALF)


def softmax(builder: Builder, x: int, dtype: str = "float32", quantization: Quantization | None = None) -> int:
    """A node that nothing fuses into, so that its input and output are stored."""
    return builder.add("SOFTMAX", [x], SHAPE, dtype, quantization=quantization, beta=1.0)


def inner_types(plan: Plan) -> set[str]:
    """Types of the tensors that do not meet the host."""
    boundary = {plan.roots[t] for t in (*plan.graph.inputs, *plan.graph.outputs)}
    return {s.type for t, s in plan.storage.items() if plan.roots[t] not in boundary}


def test_what_lies_between_kernels_is_half() -> None:
    builder = Builder()
    x = softmax(builder, softmax(builder, builder.input(SHAPE)))
    plan = halves(builder, softmax(builder, x))
    assert "half" in inner_types(plan)


def test_copies_of_inputs_are_as_precise_as_the_host_gave_them() -> None:
    builder = Builder()
    plan = halves(builder, softmax(builder, builder.input(SHAPE)))
    assert templates(plan) == ["movement/map", "portable/softmax"]
    assert inner_types(plan) == {"float"}


def test_a_place_is_chosen_among_unrounded_numbers() -> None:
    """2048.5 and 2049 are one number in half, and the place of the greatest would be the first of the two."""
    builder = Builder()
    x = softmax(builder, softmax(builder, builder.input(SHAPE)))
    place = builder.add("ARG_MAX", [x, builder.ints([3])], SHAPE[:-1], "int32", output_type="INT32")
    plan = halves(builder, place)
    (node,) = (k.node for k in plan.kernels if k.kernel.template == "portable/arg_extreme")
    assert plan.storage[node.inputs[0]].type == "float"


@pytest.mark.parametrize(("dtype", "expected"), [("int8", {"half"}), ("int16", {"float", "int"})])
def test_16_bit_numbers_outgrow_half(dtype: str, expected: set[str]) -> None:
    builder, grid = Builder(), Quantization([1 / 128], [0])
    x = softmax(builder, builder.input(SHAPE, dtype, quantization=grid), dtype, grid)
    plan = halves(builder, softmax(builder, softmax(builder, x, dtype, grid), dtype, grid))
    assert inner_types(plan) == expected


@pytest.mark.parametrize(("dtype", "scale"), [("int8", 0.3), ("int16", 0.3), ("int16", 1 / 128)])
def test_weights_are_whole_numbers_in_half_where_sums_are_integers(dtype: str, scale: float) -> None:
    """Half precision holds them as they are, whatever their scale; those of 16 bits meet the bytes of activations."""
    builder, grid = Builder(), Quantization([1 / 128], [0])
    x = builder.input((64, 8), dtype, quantization=grid)
    weights = builder.constant(np.ones((12, 8), np.int8), quantization=Quantization([scale], [0]))
    y = builder.add("FULLY_CONNECTED", [x, weights], (64, 12), dtype, quantization=grid)
    products = [k.arguments for k in halves(builder, y).kernels if k.node.kind == "fully_connected"]
    assert len(products) == (2 if dtype == "int16" else 1)
    for arguments in products:
        assert next(a.type for a in arguments if a.data is not None and a.data.size >= 96) == "half"


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float64", "double"), ("float16", "half"), ("uint16", "ushort"), ("uint32", "uint"), ("int64", "long")],
)
def test_elements_of_graph_inputs(dtype: str, expected: str) -> None:
    builder = Builder()
    x = builder.input(SHAPE, dtype)
    y = builder.add("REVERSE_V2", [x, builder.ints([1])], SHAPE, dtype)
    plan = halves(builder, y)
    (source,) = plan.graph.inputs
    assert plan.storage[source].type == expected


@pytest.mark.parametrize("target", [CPU, GPU, HALF], ids=["cpu", "gpu", "half"])
def test_compilers_may_leave_out_functions_of_storage_that_no_kernel_calls(target: Target) -> None:
    defined = [line for line in prelude(target).splitlines() if re.match(r"[\w ]+\(.*\) \{", line)]
    assert defined and all(line.startswith("static ") for line in defined)
