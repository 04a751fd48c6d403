"""The judge itself: a value just inside of each bound, one just outside, and an implementation known to be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tests.conformance.cases import Array, Case, Kind, index, load
from tests.conformance.judge import Precision, judge, summed_terms
from tests.support.models import Builder

INSIDE, OUTSIDE = 0.99, 1.01
PARTS = 20  # of all cases: the quick suite has one


def model_of(
    code: str,
    shapes: Sequence[tuple[int, ...] | None],
    output: tuple[int, ...],
    options: Mapping[str, object] | None = None,
) -> bytes:
    """A model of one operator on float tensors, none of them constant. shapes: of its inputs, None where absent."""
    builder = Builder()
    inputs = [-1 if shape is None else builder.input(shape) for shape in shapes]
    return builder.finish([builder.add(code, inputs, output, **(options or {}))])


def case_of(
    expected: object,
    *operators: str,
    kind: Kind = "float",
    dtype: str = "float32",
    quantum: float | None = None,
    zip_name: str = "op.zip",
    model: bytes | None = None,
) -> Case:
    """A case with one output; its model, where the operators do not matter to the bound, is that of one ABS."""
    return Case(
        zip=zip_name,
        id="op_000",
        kind=kind,
        params={},
        operators=operators,
        model=model_of("ABS", [(1,)], (1,)) if model is None else model,
        inputs=(),
        expected=(np.asarray(expected, dtype),),
        quanta=(quantum,),
    )


def is_right(case: Case, got: object, precision: Precision = "fp32") -> bool:
    return judge(case, [np.asarray(got, case.expected[0].dtype)], precision) is None


def assert_bound(case: Case, element: int, bound: float, precision: Precision = "fp32") -> None:
    """``bound`` is the largest error that is right in an element, up and down."""
    for sign in (1, -1):
        for factor, right in ((INSIDE, True), (OUTSIDE, False)):
            got = case.expected[0].astype(np.float64)
            got[element] += sign * factor * bound
            assert is_right(case, got, precision) == right, (sign, factor)


@pytest.mark.parametrize(
    ("expected", "element", "bound"),
    [([0.0, 0.5], 0, 1e-5), ([0.0, 0.5], 1, 1.5e-5), ([0.0, -100.0], 0, 1e-3), ([0.0, -100.0], 1, 2e-3)],
)
def test_float32_arithmetic(expected: list[float], element: int, bound: float) -> None:
    assert_bound(case_of(expected, "ABS"), element, bound)


def test_only_finite_values_widen_the_bound() -> None:
    assert_bound(case_of([np.inf, np.nan, 0.0, 2.0], "LOG"), 2, 2e-5)


@pytest.mark.parametrize(("terms", "factor"), [(64, 1.0), (640, 10.0)])
def test_long_sums_may_be_less_exact(terms: int, factor: float) -> None:
    model = model_of("FULLY_CONNECTED", [(1, terms), (2, terms)], (1, 2))
    assert_bound(case_of([0.0, 0.5], "FULLY_CONNECTED", model=model), 1, factor * 1.5e-5)


@pytest.mark.parametrize("name", ["conv_relu1.zip", "conv_relu6.zip"])
def test_clamp_hides_how_large_the_sums_were(name: str) -> None:
    assert_bound(case_of([0.0, 1.0], "CONV_2D", zip_name=name, model=SUMMING["CONV_2D"][0]), 0, 1e-4)


@pytest.mark.parametrize("operators", [("TRANSPOSE",), ("RESHAPE", "STRIDED_SLICE"), ("LESS", "SELECT_V2")])
def test_data_movement_keeps_every_bit(operators: tuple[str, ...]) -> None:
    case = case_of([0.0, 1.0, np.nan, -np.inf], *operators)
    assert is_right(case, [0.0, 1.0, np.nan, -np.inf])
    assert not is_right(case, [0.0, np.nextafter(np.float32(1), np.float32(2)), np.nan, -np.inf])
    assert not is_right(case, [-0.0, 1.0, np.nan, -np.inf])


def test_movement_beside_arithmetic_is_arithmetic() -> None:
    model = model_of("CONV_2D", [(1, 4, 4, 1), (1, 1, 1, 1)], (1, 4, 4, 1))
    assert_bound(case_of([0.0, 0.5], "RESHAPE", "CONV_2D", model=model), 1, 1.5e-5)


def test_float16_weights_are_judged_as_the_arithmetic() -> None:
    case = case_of([0.0, 0.5], "DEQUANTIZE", "PRELU", kind="float16-weights")
    assert_bound(case, 1, 1.5e-5)
    assert_bound(case, 1, 1e-2, "fp16")


@pytest.mark.parametrize(
    ("expected", "element", "bound"),
    [([0.0, -3.0], 0, 6e-2), ([0.0, -3.0], 1, 6e-2), ([0.0, 1e-7], 0, 2e-2 * 2.0**-14), ([0.0, 1e5, 1.0], 0, 2e-2)],
)
def test_float16_arithmetic(expected: list[float], element: int, bound: float) -> None:
    assert_bound(case_of(expected, "ABS"), element, bound, "fp16")


def test_float16_does_not_judge_what_it_cannot_hold() -> None:
    case = case_of([65505.0, 65504.0], "ABS")
    assert is_right(case, [np.inf, 65504.0], "fp16")
    assert not is_right(case, [65505.0, np.inf], "fp16")


def test_dynamic_range() -> None:
    case = case_of([0.0, -3.0], "CONV_2D", kind="dynamic-range")
    assert_bound(case, 0, 6e-2)
    assert_bound(case, 1, 6e-2, "fp16")


@pytest.mark.parametrize("kind", ["int8", "int16", "uint8"])
@pytest.mark.parametrize(("operator", "quanta"), [("CONV_2D", 1), ("RESIZE_BILINEAR", 2), ("MAX_POOL_2D", 0)])
def test_quantized_integers(kind: Kind, operator: str, quanta: int) -> None:
    case = case_of([5, 100], "QUANTIZE", operator, "QUANTIZE", kind=kind, dtype=kind, quantum=1)
    assert is_right(case, [5 + quanta, 100 - quanta])
    assert not is_right(case, [5 + quanta + 1, 100])
    assert not is_right(case, [5, 100 - quanta - 1])


@pytest.mark.parametrize("operator", ["RELU", "RELU6", "RELU_N1_TO_1", "CONCATENATION", "PAD", "LESS"])
def test_quantized_movement_is_exact(operator: str) -> None:
    case = case_of([5, 100], operator, kind="int8", dtype="int8", quantum=1)
    assert is_right(case, [5, 100])
    assert not is_right(case, [5, 101])


@pytest.mark.parametrize(("operator", "quanta"), [("ADD", 1.0), ("TRANSPOSE", 1.0), ("RESIZE_BILINEAR", 2.0)])
def test_float_outputs_of_quantized_models(operator: str, quanta: float) -> None:
    case = case_of([0.0, 4.0], "QUANTIZE", operator, "DEQUANTIZE", kind="int8", quantum=0.25)
    assert_bound(case, 1, 0.25 * quanta * 1.01)


def test_bools_of_quantized_models() -> None:
    case = case_of([True, False], "QUANTIZE", "LESS", kind="uint8", dtype="bool")
    assert is_right(case, [True, False])
    assert not is_right(case, [True, True])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("dtype", ["int64", "uint32", "bool"])
def test_integers_are_equal(dtype: str, precision: Precision) -> None:
    case = case_of([1, 0], "MUL", kind="int", dtype=dtype)
    assert is_right(case, [1, 0], precision)
    assert not is_right(case, [1, 1], precision)


def test_integers_beyond_float64_are_told_apart() -> None:
    assert not is_right(case_of([2**53 + 1], "MUL", kind="int", dtype="int64"), [2**53])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_nan_and_infinity_have_their_places(precision: Precision) -> None:
    case = case_of([np.nan, np.inf, -np.inf, 1.0], "POW")
    assert is_right(case, [np.nan, np.inf, -np.inf, 1.0], precision)
    for wrong in (
        [1.0, np.inf, -np.inf, 1.0],
        [np.nan, -np.inf, -np.inf, 1.0],
        [np.nan, 3e38, -np.inf, 1.0],
        [np.nan, np.nan, -np.inf, 1.0],
        [np.nan, np.inf, -np.inf, np.nan],
        [np.nan, np.inf, -np.inf, np.inf],
    ):
        assert not is_right(case, wrong, precision)


def test_empty_tensors_match_by_shape() -> None:
    case = case_of(np.empty((2, 0)), "ABS")
    assert is_right(case, np.empty((2, 0)))
    assert not is_right(case, np.empty((0, 2)))


def test_form_is_judged_before_values() -> None:
    case = case_of([1.0, 2.0], "ABS")
    assert judge(case, [np.array([1.0, 2.0])], "fp32") == "output 0: element type float64, not float32"
    assert judge(case, [np.ones((2, 1), np.float32)], "fp32") == "output 0: shape [2, 1], not [2]"
    assert judge(case, [], "fp32") == "0 outputs, not 1"


def test_every_output_is_judged_by_itself() -> None:
    one, two = np.zeros(1, np.float32), np.full(1, 100, np.float32)
    case = Case("op.zip", "op_000", "float", {}, ("ABS",), model_of("ABS", [(1,)], (1,)), (), (one, two), (None, None))
    assert judge(case, [one, two], "fp32") is None
    fault = judge(case, [one + np.float32(1e-4), two], "fp32")
    assert fault is not None and fault.startswith("output 0: 1 of 1 elements are wrong")


# Operator, shapes of its inputs and of its output, options, and the number of terms of its sums.
Row = tuple[str, list[tuple[int, ...]], tuple[int, ...], dict[str, object] | None, int]
ROWS: list[Row] = [
    ("ABS", [(5,)], (5,), None, 1),
    ("AVERAGE_POOL_2D", [(1, 8, 8, 3)], (1, 4, 2, 3), {"filter_height": 2, "filter_width": 4}, 8),
    ("BATCH_MATMUL", [(2, 3, 7), (2, 7, 5)], (2, 3, 5), None, 7),
    ("CONV_2D", [(1, 8, 8, 5), (4, 2, 3, 5)], (1, 8, 8, 4), None, 30),
    ("DEPTHWISE_CONV_2D", [(1, 8, 8, 5), (1, 2, 3, 5)], (1, 8, 8, 5), None, 6),
    ("FULLY_CONNECTED", [(2, 9), (4, 9)], (2, 4), None, 9),
    ("L2_NORMALIZATION", [(2, 3, 6)], (2, 3, 6), None, 6),
    ("LOCAL_RESPONSE_NORMALIZATION", [(1, 2, 2, 8)], (1, 2, 2, 8), {"radius": 3}, 7),
    ("LOG_SOFTMAX", [(2, 11)], (2, 11), None, 11),
    ("MEAN", [(2, 3, 4), (2,)], (2,), None, 12),
    ("SOFTMAX", [(2, 11)], (2, 11), None, 11),
    ("SUM", [(2, 3, 4), (1,)], (2, 1, 4), None, 3),
    ("TRANSPOSE_CONV", [(4,), (4, 2, 3, 5), (1, 4, 4, 5)], (1, 8, 8, 4), None, 30),
    (
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [(1, 2, 3), *[(4, 3)] * 4, *[(4, 4)] * 4, *[None] * 3, *[(4,)] * 4, None, None, (1, 4), (1, 4)],
        (1, 2, 4),
        None,
        7,
    ),
]
SUMMING = {code: (model_of(code, shapes, output, options), terms) for code, shapes, output, options, terms in ROWS}


@pytest.mark.parametrize("code", SUMMING)
def test_terms_of_a_sum(code: str) -> None:
    model, terms = SUMMING[code]
    assert summed_terms(model) == terms


def test_terms_of_a_transposed_matmul() -> None:
    assert summed_terms(model_of("BATCH_MATMUL", [(2, 7, 3), (2, 7, 5)], (2, 3, 5), {"adj_x": True})) == 7


@pytest.mark.quick(when=lambda part: part == 0)
@pytest.mark.parametrize("kernels", [OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES])
@pytest.mark.parametrize("part", range(PARTS))
def test_litert_is_right_in_every_case(part: int, kernels: OpResolverType, shared: Path) -> None:
    """Neither XNNPACK's kernels nor the optimized ones made the expected values, so that no bound is too tight."""
    entries = index(shared / "conformance")[part::PARTS]
    assert entries
    faults = {}
    for entry in entries:
        case = load(entry, shared / "conformance")
        if fault := judge(case, answers(case, kernels), "fp32"):
            faults[str(entry)] = fault
    assert faults == {}


def answers(case: Case, kernels: OpResolverType) -> list[Array]:
    """The outputs of LiteRT's interpreter, in model order."""
    interpreter = Interpreter(model_content=case.model, num_threads=1, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), case.inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
