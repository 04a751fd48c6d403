"""Damaged and hostile models: a clear error or a valid plan, and nothing that a model says in the generated source."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.support.mutants import compile_without_device, mutants
from tflgpu.interpreter import Interpreter
from tflgpu.language import Generator
from tflgpu.model.writer import ModelBuilder

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


@pytest.mark.parametrize(
    ("name", "telling"),
    [
        ("empty", "empty"),
        ("random_bytes", "TFL3"),
        ("text_file", "TFL3"),
        ("truncated", "complete"),
        ("tfl3_header_bad_offsets", "offset"),
        ("model_invoking_error", "fake-op-double"),
    ],
)
def test_invalid_files_are_refused_with_the_reason(name: str, telling: str, shared: Path) -> None:
    with pytest.raises(tflgpu.ModelError, match=telling):
        tflgpu.compile(shared / "models" / "invalid" / f"{name}.tflite")


def zipped(**entries: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in entries.items():
            archive.writestr(name, text)
    return content.getvalue()


# Files that are no TensorFlow Lite model, and the words that their error must have.
FOREIGN = {
    "ONNX model": b"\x08\x08\x12\x07pytorch\x1a\x032.1",
    "by gzip": b"\x1f\x8b\x08\0",
    "unpack it, and give the digits.tflite in it": zipped(**{"digits.tflite": ""}),
    "model of PyTorch": zipped(**{"archive/data.pkl": "", "archive/data/0": ""}),
    "pickled": b"\x80\x02\x8a\x0a",
    "model of Keras": zipped(**{"config.json": "{}", "model.weights.h5": ""}),
    "HDF5 file, as Keras": b"\x89HDF\r\n\x1a\n",
    "GGUF": b"GGUF\x03\0\0\0",
    "safetensors": b'\x08\0\0\0\0\0\0\0{"a":{}}',
    "`git lfs pull`": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "web page": b"\n<!DOCTYPE html>",
    "saved_model.pb": b"\x08\x01\x12\xe4\x10",
    "tar archive": b"a" + bytes(256) + b"ustar\0",
    "PNG image": b"\x89PNG\r\n\x1a\n",
    "`tflgpu generate`": b"LITERTLM\0\0",
    "JSON": b'{"format": "layers-model"}',
    "text file": "Grüße aus dem Café".encode(),
    "nothing but zeros": bytes(600),
    "they are b'4567": b"\xff1234567\xfe",
}


@pytest.mark.parametrize("telling", FOREIGN)
def test_other_files_are_named_with_what_to_do(telling: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(FOREIGN[telling])
    for given in (path, FOREIGN[telling]):
        with pytest.raises(tflgpu.ModelError, match=f"not a TensorFlow Lite model.*{re.escape(telling)}"):
            tflgpu.inspect(given)
    with pytest.raises(ValueError, match=re.escape(telling)):
        Interpreter(str(path))


@pytest.mark.parametrize(
    ("name", "telling"),
    [("saved_model.pb", "SavedModel"), ("a.tflite", "such as a.tflite"), ("config.json", "Hugging Face")],
)
def test_folders_are_named_with_what_to_do(name: str, telling: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(tflgpu.ModelError, match=telling):
        tflgpu.inspect(tmp_path)
    with pytest.raises(tflgpu.ModelError, match=telling):
        Generator(tmp_path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there are no such devices")
def test_a_device_without_end_is_no_model() -> None:
    with pytest.raises(tflgpu.ModelError, match="a device of the system"):
        tflgpu.inspect("/dev/zero")


def mutate(model: Path, seed: int, count: int) -> list[str]:
    command = [sys.executable, "-W", "error", "-m", "tests.support.mutants", str(model), str(seed), str(count)]
    # Each thread of a BLAS reserves address space, which the process limits.
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    findings: list[str] = json.loads(done.stdout)
    return findings


def test_damage_never_escapes_as_another_error(pytestconfig: pytest.Config) -> None:
    assert mutate(DIGITS, seed=1, count=500 if pytestconfig.getoption("all") else 150) == []


@pytest.mark.quick(when=lambda name: name == "pretrainedResnet")
@pytest.mark.parametrize("name", ["pretrainedResnet", "kws_ref_model"])
def test_damage_to_real_models_never_escapes(name: str, shared: Path, pytestconfig: pytest.Config) -> None:
    count = 120 if pytestconfig.getoption("all") else 50
    assert mutate(shared / "models" / f"{name}.tflite", seed=2, count=count) == []


def test_some_damage_is_harmless() -> None:
    """And goes through all stages: mutants that are all refused at once would test only the reader."""
    survivors = 0
    for mutant in mutants(DIGITS.read_bytes(), seed=1, count=40):
        try:
            compile_without_device(mutant)
            survivors += 1
        except tflgpu.ModelError:
            pass
    assert 0 < survivors < 40


HOSTILE = "a\"b'c\\d\n#define x */ } {{ 7 * 7 }} {% raw %} \0"


def test_nothing_a_model_says_reaches_the_source() -> None:
    assert _source(HOSTILE) == _source("plain")


def _source(text: str) -> str:
    """The generated source of a model all of whose names and descriptions begin with ``text``."""
    builder = ModelBuilder(description=text)
    x = builder.input((1, 4, 4, 8), name=f"{text}x")
    weights = builder.constant(np.ones((8, 1, 1, 8), np.float32), name=f"{text}w")
    bias = builder.constant(np.ones(8, np.float32), name=f"{text}b")
    y = builder.tensor((1, 4, 4, 8), name=f"{text}y")
    builder.op("CONV_2D", [x, weights, bias], [y], {"padding": "SAME", "stride_w": 1, "stride_h": 1})
    return tflgpu.compile(builder.finish([y], signature=f"{text}s")).source


def test_an_unknown_custom_operator_is_named() -> None:
    builder = ModelBuilder()
    x, y = builder.input((1, 4)), builder.tensor((1, 4))
    builder.op(HOSTILE.replace("\0", ""), [x], [y])
    with pytest.raises(tflgpu.ModelError, match="#define x"):
        tflgpu.compile(builder.finish([y]))


def test_an_error_about_a_file_begins_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"I am no model")
    for read in (tflgpu.compile, tflgpu.inspect):
        with pytest.raises(tflgpu.ModelError, match=rf"^{re.escape(str(path))}: not a TensorFlow Lite model"):
            read(path)
        with pytest.raises(tflgpu.ModelError, match=r"^not a TensorFlow Lite model"):
            read(path.read_bytes())
