"""Wrong arguments are a TypeError or ValueError that names the argument; numpy's numbers are as good as Python's."""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.conftest import missing
from tflgpu.artifact.serializer import open_cache
from tflgpu.checking.option_declarations import flat_names
from tflgpu.options import options_of

MODEL = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"
OFF = tflgpu.Options(cache="off")
X = np.zeros((1, 8, 8, 1), np.float32)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("precision", 32),
        ("precision", []),
        ("device", None),
        ("device", 1.5),
        ("device", -1),
        ("device", b"CPU"),
        ("outputs", 5),
        ("outputs", "logits"),
        ("outputs", []),
        ("outputs", [1.5]),
        ("signature", 5),
        ("cpu_ops", 5),
        ("cpu_ops", "SOFTMAX"),
        ("cpu_ops", [1.5]),
        ("cpu_ops", [[1]]),
        ("batch", 0),
        ("batch", "2"),
        ("batch", 1.5),
        ("batch", 10**30),
        ("input_shapes", [(1, 8, 8, 1)]),
        ("input_shapes", {1: (1,)}),
        ("input_shapes", {"image": 4}),
        ("input_shapes", {"image": "1"}),
        ("input_shapes", {"image": (1.9, 8, 8, 1)}),
        ("input_shapes", {"image": (0, 8, 8, 1)}),
        ("uint8_inputs", ["image"]),
        ("uint8_inputs", {"image": 3}),
        ("uint8_inputs", {"image": ("a", 1)}),
        ("uint8_inputs", {"image": (0, 0)}),
        ("cache_dir", 5),
        ("cache_dir", ""),
        ("cache_dir", b"cache"),
        ("cache_dir", ["cache", 5]),
        ("cache_dir", ["cache", ""]),
        ("cache_limit", 0),
        ("cache_limit", 1.5),
        ("cache_limit", "2GB"),
        ("model_token", "5"),
        ("model_token", 1 << 64),
        ("checks", "yes"),
    ],
    ids=repr,
)
def test_a_wrong_option_is_named(field: str, value: Any) -> None:
    with pytest.raises(
        (TypeError, ValueError), match=rf"^Options\.{re.escape(flat_names(tflgpu.Options)[field].path)}"
    ):
        options_of({field: value})


@pytest.mark.parametrize("value", [None, 4, {"batch": 4}, tflgpu.Interface()], ids=repr)
def test_a_wrong_group_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^Options\.shapes is .*; tflgpu\.Shapes\(\.\.\.\) was expected$"):
        tflgpu.Options(shapes=value)


def test_options_take_numpys_numbers() -> None:
    two = np.int64(2)
    options = tflgpu.Options(
        device=two,
        shapes=tflgpu.Shapes(batch=two, inputs={"image": np.array([2, 8])}),
        cpu_part=tflgpu.CpuPart(operators=[two]),
        cache_files=tflgpu.CacheFiles(model_token=np.uint64(2)),
    )
    shapes, operators, token = options.shapes, options.cpu_part.operators, options.cache_files.model_token
    assert (options.device, shapes.batch, operators, token) == (2, 2, (2,), 2)
    assert shapes.inputs == {"image": (2, 8)}
    numbers = options.device, shapes.batch, operators[0], token, *shapes.inputs["image"]
    assert {type(number) for number in numbers} == {int}


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = open_cache(tflgpu.Options(cache_files=tflgpu.CacheFiles(path=["~/models", Path("~/more")])))
    assert cache is not None
    assert [place.path for place in cache.places] == [tmp_path / "models", tmp_path / "more"]


@pytest.mark.parametrize(
    ("call", "telling"),
    [
        (lambda: tflgpu.compile(MODEL, "fp32"), r"^options is 'fp32'; .*precision='fp32'"),
        (lambda: tflgpu.inspect(MODEL, {}), "^options is {}"),
        (lambda: tflgpu.Interpreter(MODEL, options="fp32"), "^options is 'fp32'"),
        (lambda: tflgpu.compile(MODEL, OFF, queue=5), "^queue is of type int"),
        (lambda: tflgpu.compile("", OFF), "^model is an empty path"),
        (lambda: tflgpu.compile(None, OFF), "^model is of type NoneType"),
        (lambda: tflgpu.compile(5, OFF), "^model is of type int"),
        (lambda: tflgpu.compile([1, 2], OFF), "^model is of type list"),
        (lambda: tflgpu.inspect(StringIO("TFL3")), "^model is of type StringIO"),
        (lambda: tflgpu.Interpreter(5, options=OFF), "^model is of type int"),
    ],
)
def test_a_wrong_argument_of_compile_is_named(call: Callable[[], object], telling: str) -> None:
    with pytest.raises((TypeError, ValueError), match=telling):
        call()


@pytest.fixture(scope="module")
def model() -> tflgpu.CompiledModel:
    if not tflgpu.devices():
        missing("an OpenCL device")
    return tflgpu.compile(MODEL, OFF)


@pytest.mark.device
@pytest.mark.parametrize(
    ("call", "telling"),
    [
        (lambda model: model.run(None), "^inputs is of type NoneType"),
        (lambda model: model.run(5), "^inputs is of type int"),
        (lambda model: model.run("image"), "^inputs is of type str"),
        (lambda model: model.run({X.tobytes()}), "^inputs is of type set"),
        (lambda model: model.run(iter([X])), "^inputs is of type list_iterator"),
        (lambda model: model.run([[[1, 2], [3]]]), "^input 'image' is no array"),
        (lambda model: model.run({"image": None}), r"^input 'image' has shape \[\]"),
        (lambda model: model.run(X.astype(object)), "^input 'image' has element type object"),
        (lambda model: model.run(X, outputs=["probabilities"]), "^outputs is of type list"),
        (lambda model: model.run(X, outputs={"probabilities": X}), r"^output 'probabilities' has shape \[1, 8, 8, 1\]"),
        (lambda model: model.profile(X, runs=0), "^runs is 0"),
        (lambda model: model.profile(X, runs=1.5), r"^runs is 1\.5"),
        (lambda model: model.pinned_array(5), "no input 5"),
    ],
)
def test_a_wrong_argument_of_a_model_is_named(
    call: Callable[[tflgpu.CompiledModel], object], telling: str, model: tflgpu.CompiledModel
) -> None:
    with pytest.raises((TypeError, ValueError), match=telling):
        call(model)


@pytest.mark.parametrize(
    ("call", "telling"),
    [
        (lambda interpreter: interpreter.get_tensor("a"), "^tensor_index is 'a'"),
        (lambda interpreter: interpreter.set_tensor(0.5, X), r"^tensor_index is 0\.5"),
        (lambda interpreter: interpreter.resize_tensor_input(0, [1.5, 8, 8, 1]), r"^tensor_size is \[1\.5, 8"),
        (lambda interpreter: interpreter.get_tensor_details("a"), "^subgraph_index is 'a'"),
    ],
)
def test_a_wrong_argument_of_an_interpreter_is_named(
    call: Callable[[tflgpu.Interpreter], object], telling: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=telling):
        call(tflgpu.Interpreter(MODEL, options=OFF))
