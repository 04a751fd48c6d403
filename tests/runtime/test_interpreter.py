"""``tflgpu.Interpreter`` against the interpreter whose methods it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter as LiteRT

import tflgpu
from tests.frontend.stateful_models import delay
from tests.quick import on_first_runtime
from tflgpu.model.reader import read_model
from tflgpu.model.writer import ModelBuilder

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
EITHER = [pytest.param(LiteRT, id="litert"), pytest.param(tflgpu.Interpreter, id="tflgpu")]
FP32 = tflgpu.Options(precision="fp32")


def sum_of_any_length() -> bytes:
    builder = ModelBuilder()
    x, y = (builder.input((1, 4), shape_signature=(-1, 4)) for _ in range(2))
    total = builder.tensor((1, 4))
    builder.op("ADD", [x, y], [total])
    return builder.finish([total])


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
        own = ours.get_tensor_details()
        for mine, other in zip(own, theirs.get_tensor_details()[: len(own)], strict=True):
            if not other["sparsity_parameters"]:  # sparse constants are dense for us
                assert same(mine, other), f"{path.name}, tensor {mine['index']}"


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
def test_misuse_raises_what_litert_raises(kind: Callable[..., Any]) -> None:
    interpreter = kind(str(DIGITS))
    (image,), (result,) = interpreter.get_input_details(), interpreter.get_output_details()
    right = np.zeros(image["shape"], np.float32)
    with pytest.raises(ValueError, match="allocate_tensors"):
        interpreter.set_tensor(image["index"], right)
    with pytest.raises(ValueError, match="allocate_tensors"):
        interpreter.get_tensor(result["index"])
    with pytest.raises(RuntimeError, match="not ready"):
        interpreter.invoke()
    interpreter.allocate_tensors()
    for value in (right.astype(np.float64), right[0], [1.0]):
        with pytest.raises(ValueError, match="expected"):
            interpreter.set_tensor(image["index"], value)
    for call in (lambda: interpreter.set_tensor(9999, right), lambda: interpreter.get_tensor(9999)):
        with pytest.raises(ValueError, match="9999"):
            call()
    with pytest.raises(ValueError, match="nonsense"):
        interpreter.get_signature_runner("nonsense")
    for arguments in ({}, {"model_path": str(DIGITS), "model_content": DIGITS.read_bytes()}):
        with pytest.raises(ValueError, match="model_content"):
            kind(**arguments)


def test_what_only_tflgpu_refuses() -> None:
    interpreter = tflgpu.Interpreter(DIGITS, options=FP32)
    interpreter.allocate_tensors()
    first_operator = read_model(DIGITS.read_bytes()).subgraphs[0].operators[0]
    with pytest.raises(ValueError, match=r"Options\.outputs"):
        interpreter.get_tensor(first_operator.outputs[0])
    (result,) = interpreter.get_output_details()
    with pytest.raises(ValueError, match=r"invoke\(\) first"):
        interpreter.get_tensor(result["index"])
    with pytest.raises(ValueError, match="is no input"):
        interpreter.set_tensor(result["index"], np.zeros((1, 10), np.float32))
    with pytest.raises(ValueError, match="is no input"):
        interpreter.resize_tensor_input(result["index"], [2, 10])
    with pytest.raises(ValueError, match="fixed"):
        interpreter.resize_tensor_input(interpreter.get_input_details()[0]["index"], [2, 8, 8, 1], strict=True)
    with pytest.raises(ValueError, match="intermediate"):
        tflgpu.Interpreter(DIGITS, experimental_preserve_all_tensors=True)
    with pytest.raises(ValueError, match=r"Options\.batch"):
        tflgpu.Interpreter(DIGITS, options=tflgpu.Options(batch=2))


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
