"""``Numerics(quantized="float")`` keeps only one part of quantization: the range of an activation's integers,
unrounded.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.support.models import Builder
from tflgpu.frontend.lower import Choices, lower
from tflgpu.model.reader import read_model
from tflgpu.model.tensor_info import Quantization
from tflgpu.options import Execution, Numerics, Options

Floats = NDArray[np.float32]
RELU6 = Quantization([6 / 255], [-128])  # the range that a converter leaves of it
NARROW, WIDE = Quantization([1 / 128], [0]), Quantization([1 / 16], [0])
SHAPE = (1, 3, 5, 6)
ADD = {"fused_activation_function": "NONE"}
POOL = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "filter_height": 1, "filter_width": 1} | ADD


def run(model: bytes, x: Floats, device_name: str, precision: str = "fp32", kernels: str = "auto") -> Floats:
    """The single output."""
    options = Options(
        numerics=Numerics(quantized="float"),
        device=device_name,
        precision=precision,
        execution=Execution(kernels=kernels),
    )
    (result,) = tflgpu.compile(model, options).run(x).values()
    return result


def chain(*operators: tuple[str, Quantization, dict[str, object]]) -> bytes:
    """Operators one behind the other, the first of a float; an ADD adds its input to itself. The result is a float."""
    builder = Builder()
    value = builder.input(SHAPE)
    for code, quantization, options in operators:
        value = builder.add(
            code,
            [value] * (2 if code in ("ADD", "MAXIMUM") else 1),
            SHAPE,
            "int8",
            name=code,
            quantization=quantization,
            **options,
        )
    return builder.finish([builder.add("DEQUANTIZE", [value], SHAPE)])


def numbers() -> Floats:
    return np.random.default_rng(0).uniform(-5, 5, SHAPE).astype(np.float32)


@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("fp16", 1e-2)])
def test_a_range_is_an_activation(precision: str, tolerance: float, kernels: str, device_name: str) -> None:
    x = numbers()
    got = run(chain(("QUANTIZE", WIDE, {}), ("ADD", RELU6, ADD)), x, device_name, precision, kernels)
    np.testing.assert_allclose(got, np.clip(2 * x, 0, 6), atol=tolerance)
    assert (got > 0).any() and (got == 0).any() and len(np.unique(got)) > 20, "not a grid"


def test_nan_passes(device_name: str) -> None:
    x = np.full(SHAPE, np.nan, np.float32)
    assert np.isnan(run(chain(("QUANTIZE", WIDE, {}), ("ADD", RELU6, ADD)), x, device_name)).all()


def clamped(model: bytes) -> list[str]:
    """The names of tensors that the first stage of compiling clamps."""
    graph = lower(read_model(model), choices=Choices(fake_quantize=False)).graph
    return [graph[n.output].name for n in graph.nodes if any(op.function == "clamp" for op in n.epilogue)]


@pytest.mark.parametrize(
    ("code", "options", "before", "after", "expected"),
    [
        ("LOGISTIC", {}, NARROW, NARROW, False),  # whose grid is always the same
        ("RESHAPE", {"new_shape": SHAPE}, NARROW, NARROW, False),
        ("MAXIMUM", {}, NARROW, WIDE, False),  # no number beyond those that it is given
        ("MAXIMUM", {}, WIDE, NARROW, True),
        ("AVERAGE_POOL_2D", POOL, NARROW, NARROW, False),
        ("QUANTIZE", {}, NARROW, WIDE, False),
        ("QUANTIZE", {}, WIDE, NARROW, True),
        ("ADD", ADD, NARROW, NARROW, True),
        ("ADD", {"fused_activation_function": "RELU6"}, NARROW, RELU6, False),  # which clamps already
        ("ADD", {"fused_activation_function": "RELU6"}, WIDE, NARROW, True),
    ],
)
def test_only_results_that_can_be_outside_are_clamped(
    code: str, options: dict[str, object], before: Quantization, after: Quantization, expected: bool
) -> None:
    model = chain(("QUANTIZE", before, {}), ("ADD", before, ADD), (code, after, options))
    assert clamped(model)[1:] == [code] * expected


def test_what_a_loop_gives_to_its_body_is_clamped() -> None:
    """It is an input of the body's subgraph, but not of the model."""
    main, condition, body = Builder(), Builder(), Builder()
    count, x = condition.input((), "int32"), condition.input(SHAPE)
    again = condition.add("LESS", [count, condition.ints(2)], (), "bool")
    count, x = body.input((), "int32"), body.input(SHAPE)
    more = body.add("ADD", [count, body.ints(1)], (), "int32", **ADD)
    held = body.add("QUANTIZE", [x], SHAPE, "int8", name="held", quantization=NARROW)
    result = body.add("DEQUANTIZE", [held], SHAPE)
    x, steps, output = main.input(SHAPE), main.tensor((), "int32"), main.tensor(SHAPE)
    subgraphs = main.subgraph(condition, [again]), main.subgraph(body, [more, result])
    options = dict(zip(("cond_subgraph_index", "body_subgraph_index"), subgraphs, strict=True))
    main.op("WHILE", [main.ints(0), x], [steps, output], options)
    assert clamped(main.finish([output])) == ["held", "held"]


@pytest.mark.parametrize("zero", [-900, 300])
def test_a_zero_point_beyond_the_type_still_leaves_zero_in_range(zero: int, device_name: str) -> None:
    """Kernels count on a clamp to keep zeros, which the lanes past the last channel are."""
    got = run(chain(("QUANTIZE", WIDE, {}), ("ADD", Quantization([1.0], [zero]), ADD)), numbers(), device_name)
    assert np.isfinite(got).all()


def test_the_report_names_what_is_not_clamped(device_name: str) -> None:
    """The caller's own numbers: a kernel would do nothing else to them."""
    model = chain(("QUANTIZE", WIDE, {}), ("ADD", RELU6, ADD))
    report = tflgpu.compile(model, Options(numerics=Numerics(quantized="float"), device=device_name)).report
    assert report.kernels == 1
    assert [o.notes for o in report.operators if o.notes] == [
        ("'QUANTIZE' is not clamped to -8..7.9375, which its integers would do: it is an input of the model",)
    ]
    assert "not clamped to -8..7.9375" in str(report)
    assert not any(o.notes for o in tflgpu.inspect(model).operators)


@pytest.mark.parametrize(
    ("code", "operand", "dtype", "rounds"),
    [
        ("MAXIMUM", NARROW, "int8", False),
        ("MAXIMUM", WIDE, "int8", True),
        ("QUANTIZE", NARROW, "int8", False),
        ("QUANTIZE", Quantization(NARROW.scale, [128]), "uint8", False),
        ("QUANTIZE", Quantization(NARROW.scale, [0]), "int16", True),
        ("ADD", NARROW, "int8", True),
    ],
)
def test_elements_on_the_grid_of_the_result_are_not_rounded_again(
    code: str, operand: Quantization, dtype: str, rounds: bool
) -> None:
    builder = Builder()
    x = builder.input(SHAPE, dtype, quantization=operand)
    y = builder.add(code, [x] * (1 if code == "QUANTIZE" else 2), SHAPE, "int8", quantization=NARROW)
    graph = lower(read_model(builder.finish([y]))).graph
    functions = [op.function for node in graph.nodes for op in node.epilogue]
    assert rounds == bool({"fake_quantize", "requantize"} & set(functions))
