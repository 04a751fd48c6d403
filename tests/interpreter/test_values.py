"""``tflgpu.Interpreter`` against the interpreter whose methods it has."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import tflgpu
from tests.frontend.stateful_models import delay
from tests.quick import on_first_runtime
from tests.safety.models import scaled
from tests.support.models import Builder
from tflgpu.compiled_model import CompiledModel
from tflgpu.frontend.lowered import has_same_rows
from tflgpu.interpreter import subgraph_tensors
from tflgpu.opening import lower_for_device
from tflgpu.runtime.runner import RowPieces

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
EITHER = [pytest.param(LiteRT, id="litert"), pytest.param(tflgpu.Interpreter, id="tflgpu")]
FP32 = tflgpu.Options(precision="fp32")


def sum_of_any_length() -> bytes:
    builder = Builder()
    x, y = (builder.input((1, 4), shape_signature=(-1, 4)) for _ in range(2))
    return builder.finish([builder.add("ADD", [x, y], (1, 4))])


def same(ours: Any, theirs: Any) -> bool:
    """Equal, in all that ``theirs`` has of dictionaries and lists."""
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    return bool(ours == theirs)


def test_every_tensor_is_described_as_litert_does(shared: Path) -> None:
    models = sorted((shared / "models").glob("*.tflite"))
    assert len(models) >= 30
    for path in models:
        content = path.read_bytes()
        ours, theirs = tflgpu.Interpreter(model_content=content), LiteRT(model_content=content)
        assert same(ours.get_input_details(), theirs.get_input_details()), path.name
        assert same(ours.get_output_details(), theirs.get_output_details()), path.name
        assert ours.get_signature_list() == theirs.get_signature_list(), path.name
        assert ours._get_full_signature_list() == theirs._get_full_signature_list(), path.name
        own = ours.get_tensor_details()
        for mine, other in zip(own, theirs.get_tensor_details()[: len(own)], strict=True):
            assert same(mine, other), f"{path.name}, tensor {mine['index']}"
        operators = theirs._get_ops_details()  # those of delegates come last
        assert same(ours._get_ops_details(), operators[: len(ours._get_ops_details())]), path.name


@pytest.mark.quick(when=on_first_runtime)
@pytest.mark.parametrize("name", ["face_detection_short_range", "kws_ref_model", "text_classification"])
def test_one_import_line_swaps(shared: Path, name: str, device_name: str) -> None:
    path = shared / "models" / f"{name}.tflite"
    results = []
    options = tflgpu.Options(precision="fp32", device=device_name)
    for interpreter in (LiteRT(str(path)), tflgpu.Interpreter(str(path), options=options)):
        interpreter.allocate_tensors()
        random = np.random.default_rng(0)
        for detail in interpreter.get_input_details():
            value = random.integers(0, 100, detail["shape"])
            interpreter.set_tensor(detail["index"], value.astype(detail["dtype"]))
        interpreter.invoke()
        results.append([interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()])
    for ours, theirs in zip(*reversed(results), strict=True):
        assert ours.dtype == theirs.dtype
        tolerance = 1e-4 * np.ptp(theirs) if theirs.dtype == np.float32 else 1
        np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", EITHER)
def test_inputs_resize(kind: Callable[..., Any]) -> None:
    interpreter = kind(model_content=sum_of_any_length())
    first, second = (d["index"] for d in interpreter.get_input_details())
    for rows in (3, 1):
        for index in (first, second):
            interpreter.resize_tensor_input(index, [rows, 4], strict=True)
        assert interpreter.get_input_details()[0]["shape"].tolist() == [rows, 4]
        interpreter.allocate_tensors()
        x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
        interpreter.set_tensor(first, x)
        interpreter.tensor(second)()[:] = 1
        interpreter.invoke()
        (output,) = interpreter.get_output_details()
        assert output["shape"].tolist() == [rows, 4]
        np.testing.assert_array_equal(interpreter.get_tensor(output["index"]), x + 1)


@pytest.mark.parametrize("kind", EITHER)
def test_what_is_read_is_a_copy(kind: Callable[..., Any]) -> None:
    interpreter = kind(model_content=sum_of_any_length())
    interpreter.allocate_tensors()
    index = interpreter.get_input_details()[0]["index"]
    given = np.ones((1, 4), np.float32)
    interpreter.set_tensor(index, given)
    given[:] = 2
    interpreter.get_tensor(index)[:] = 3
    np.testing.assert_array_equal(interpreter.get_tensor(index), np.ones((1, 4)))


@pytest.mark.parametrize("kind", EITHER)
def test_outputs_can_be_read_and_set_before_a_run(kind: Callable[..., Any]) -> None:
    interpreter = kind(model_content=sum_of_any_length())
    interpreter.allocate_tensors()
    (output,) = interpreter.get_output_details()
    assert interpreter.get_tensor(output["index"]).shape == (1, 4)
    interpreter.set_tensor(output["index"], np.full((1, 4), 7, np.float32))
    assert (interpreter.get_tensor(output["index"]) == 7).all()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], np.ones((1, 4), np.float32))
    interpreter.invoke()
    assert (interpreter.get_tensor(output["index"]) == 2).all()


def test_arrays_of_another_byte_order_keep_their_values() -> None:
    """LiteRT copies the bytes."""
    interpreter = tflgpu.Interpreter(model_content=sum_of_any_length())
    interpreter.allocate_tensors()
    values = np.array([[1, 2, 3, 4]], np.float32)
    for tensor in (0, 2):
        interpreter.set_tensor(tensor, values.astype(">f4"))
        np.testing.assert_array_equal(interpreter.get_tensor(tensor), values)


@pytest.mark.parametrize("kind", EITHER)
def test_a_view_is_the_tensor_s_own_memory(kind: Callable[..., Any]) -> None:
    interpreter = kind(model_content=sum_of_any_length())
    interpreter.allocate_tensors()
    first, total = interpreter.tensor(0), interpreter.tensor(2)
    first()[0, :] = [1, 2, 3, 4]
    first()[0][1:] += 1
    interpreter.tensor(1)().fill(0)
    interpreter.invoke()
    assert total().tolist() == [[1, 3, 4, 5]]
    total()[0, 0] = 9
    assert interpreter.get_tensor(2)[0, 0] == 9
    column = first()[:, :1].T
    with pytest.raises(RuntimeError, match="reference to internal data"):
        interpreter.invoke()
    assert column[0, 0] == 1
    del column
    interpreter.invoke()


@pytest.mark.parametrize("kind", EITHER)
@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
@pytest.mark.quick(when=lambda kind: kind is LiteRT)
def test_a_detector_s_outputs_have_shapes_before_a_run(kind: Callable[..., Any], shared: Path) -> None:
    interpreter = kind(str(shared / "models" / "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite"))
    interpreter.allocate_tensors()
    details = interpreter.get_output_details()
    assert [d["shape"].tolist() for d in details] == [[1, 10, 4], [1, 10], [1, 10], [1]]
    assert [interpreter.get_tensor(d["index"]).shape for d in details] == [(1, 10, 4), (1, 10), (1, 10), (1,)]


def prepared(path: Path, options: tflgpu.Options) -> None:
    tflgpu.Interpreter(path, options=options).allocate_tensors()


@pytest.mark.parametrize("prepare", [tflgpu.compile, prepared])
def test_a_fallback_is_reported_at_the_caller_s_line(prepare: Callable[..., Any]) -> None:
    with pytest.warns(tflgpu.FallbackWarning) as caught:
        prepare(DIGITS, tflgpu.Options(cpu_part=tflgpu.CpuPart(operators=["SOFTMAX"])))
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]


@pytest.mark.parametrize("kind", EITHER)
def test_signatures(kind: Callable[..., Any]) -> None:
    runner = kind(str(DIGITS)).get_signature_runner()
    assert same(runner.get_input_details(), LiteRT(str(DIGITS)).get_signature_runner().get_input_details())
    assert same(runner.get_output_details(), LiteRT(str(DIGITS)).get_signature_runner().get_output_details())
    images = np.random.default_rng(0).random((3, 8, 8, 1), np.float32)
    together = runner(image=images)["probabilities"]
    alone = np.concatenate([runner(image=image[None])["probabilities"] for image in images])
    np.testing.assert_allclose(together, alone, atol=1e-6)
    with pytest.raises(ValueError, match=r"picture|Invalid"):
        runner(picture=images)


def test_only_shapes_that_run_are_compiled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = tflgpu.Options(precision="fp32", cache_files=tflgpu.CacheFiles(path=tmp_path))
    interpreter = tflgpu.Interpreter(model_content=scaled(2.0), options=options)
    caplog.set_level(logging.INFO, "tflgpu")
    for batch in (1, 2, 5, 3):
        interpreter.resize_tensor_input(0, [batch, 2, 2, 4])
        interpreter.allocate_tensors()
        (result,) = interpreter.get_output_details()
        assert result["shape"].tolist() == [batch, 2, 2, 4]
        assert not interpreter.get_tensor(result["index"]).any()
    assert "planning" not in caplog.text
    interpreter.set_tensor(0, np.ones((3, 2, 2, 4), np.float32))
    for _ in range(2):
        interpreter.invoke()
    assert caplog.text.count("planning") == 1
    assert (interpreter.get_tensor(result["index"]) == 2).all()


def row_by_row(batch: int) -> bytes:
    builder = Builder()
    x = builder.input((batch, 4, 4, 8), name="x", shape_signature=(-1, 4, 4, 8))
    weights = np.random.default_rng(0).normal(size=(8, 1, 1, 8)).astype(np.float32)
    given = [x, builder.constant(weights), builder.constant(np.ones(8, np.float32))]
    y = builder.add("CONV_2D", given, (batch, 4, 4, 8), padding="SAME", stride_h=1, stride_w=1)
    y = builder.add("MEAN", [y, builder.ints([1, 2])], (batch, 8), keep_dims=False)
    return builder.finish([builder.add("SOFTMAX", [y], (batch, 8), beta=1.0)])


def across_rows(batch: int) -> bytes:
    builder = Builder()
    x = builder.input((batch, 4, 4, 8), name="x")
    mean = builder.add("MEAN", [x, builder.ints([0])], (1, 4, 4, 8), keep_dims=True)
    return builder.finish([builder.add("SUB", [x, mean], (batch, 4, 4, 8))])


def reversed_rows(batch: int) -> bytes:
    builder = Builder()
    x = builder.input((batch, 4, 4, 8), name="x")
    return builder.finish([builder.add("REVERSE_V2", [x, builder.ints([0])], (batch, 4, 4, 8))])


@pytest.mark.parametrize(("build", "compilations"), [(row_by_row, 1), (across_rows, 5), (reversed_rows, 5)])
def test_another_number_of_rows_needs_no_program_of_its_own(
    build: Callable[[int], bytes], compilations: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = build(4)
    options = tflgpu.Options(precision="fp32", cache="off")
    ours, theirs = tflgpu.Interpreter(model_content=data, options=options), LiteRT(model_content=data)
    caplog.set_level(logging.INFO, "tflgpu")

    def answers(rows: int) -> None:
        x = np.random.default_rng(rows).normal(size=(rows, 4, 4, 8)).astype(np.float32)
        results = []
        for interpreter in (ours, theirs):
            interpreter.resize_tensor_input(0, x.shape)
            interpreter.allocate_tensors()
            interpreter.set_tensor(0, x)
            interpreter.invoke()
            results.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
        np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)

    for rows in (4, 3, 4, 1, 9, 4):
        answers(rows)
    assert caplog.text.count("planning") == compilations
    monkeypatch.setattr(RowPieces, "is_worthwhile", False)  # they have taken too long
    answers(3)
    answers(3)
    assert caplog.text.count("planning") == compilations + 1


def test_compiled_models_take_other_numbers_of_rows(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, options = row_by_row(4), tflgpu.Options(precision="fp32", cache="off")
    caplog.set_level(logging.INFO, "tflgpu")
    model, peer = tflgpu.compile(data, options), CompiledModel.from_buffer(data, options=options)
    (output,) = model.outputs

    def check(rows: int) -> None:
        x = np.random.default_rng(rows).normal(size=(rows, 4, 4, 8)).astype(np.float32)
        wanted = np.concatenate([model.run(x[[n] * 4])[output.name][:1] for n in range(rows)])
        np.testing.assert_allclose(model.run(x)[output.name], wanted, rtol=1e-5)
        peer.resize_input_tensor(0, x.shape)
        inputs, outputs = peer.create_input_buffers(0), peer.create_output_buffers(0)
        inputs[0].write(x)
        peer.run_by_index(0, inputs, outputs)
        np.testing.assert_allclose(outputs[0].read(rows * 8, np.float32).reshape(rows, 8), wanted, rtol=1e-5)

    for rows in (3, 4, 9):
        check(rows)
    assert caplog.text.count("planning") == 2  # a model each
    monkeypatch.setattr(RowPieces, "is_worthwhile", False)  # they have taken too long
    check(3)
    assert caplog.text.count("planning") == 4


def accumulated_rows(batch: int) -> bytes:
    builder = Builder()
    x = builder.input((batch, 4), name="x")
    return builder.finish([builder.add("CUMSUM", [x, builder.constant(np.int32(0))], (batch, 4))])


def chosen_rows(batch: int) -> bytes:
    builder = Builder()
    x, rows = builder.input((batch, 4), name="x"), builder.input((batch,), "int32", name="rows")
    return builder.finish([builder.add("GATHER", [x, rows], (batch, 4))])


def embedded_rows(batch: int) -> bytes:
    builder = Builder()
    table = builder.constant(np.arange(40, dtype=np.float32).reshape(10, 4))
    return builder.finish([builder.add("GATHER", [table, builder.input((batch, 3), "int32")], (batch, 3, 4))])


@pytest.mark.parametrize(
    ("build", "independent"),
    [(row_by_row, True), (embedded_rows, True)]
    + [(build, False) for build in (across_rows, reversed_rows, accumulated_rows, chosen_rows)],
)
def test_rows_are_independent(build: Callable[[int], bytes], independent: bool) -> None:
    options = [tflgpu.Options(shapes=tflgpu.Shapes(batch=batch)) for batch in (5, 3)]
    one, other = (lower_for_device(build(5), each) for each in options)
    assert one and other
    assert has_same_rows(one.lowered, other.lowered) == independent


def test_too_large_a_shape_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = tflgpu.Interpreter(model_content=scaled(2.0), options=FP32)
    interpreter.resize_tensor_input(0, [1 << 20, 2, 2, 4])
    monkeypatch.setattr(subgraph_tensors, "_first_value", lambda *_: np.zeros(1 << 55))
    with pytest.raises(tflgpu.DeviceError, match=r"not enough memory for inputs 'x' \[1048576, 2, 2, 4\]"):
        interpreter.allocate_tensors()
    with pytest.raises(RuntimeError, match="not ready"):
        interpreter.invoke()


def test_state_is_kept_until_it_is_reset() -> None:
    interpreter = tflgpu.Interpreter(model_content=delay(), options=FP32)
    interpreter.allocate_tensors()
    (given,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()

    def run(value: float) -> float:
        interpreter.set_tensor(given["index"], np.full(given["shape"], value, np.float32))
        interpreter.invoke()
        return float(interpreter.get_tensor(result["index"]).flat[0])

    start = run(5.0)
    assert run(7.0) == 5.0
    interpreter.reset_all_variables()
    assert run(1.0) == start
