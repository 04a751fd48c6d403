"""The command line, on the digits of ``examples/``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, detector_model, fail, invoke, succeed, unsupported_model
from tests.support.models import WITHOUT_KERNEL
from tests.support.packages import hide_litert
from tflgpu.cli import VERBS
from tflgpu.cli.commands.run import save, summarize
from tflgpu.fallback.litert_interpreter import without_notices
from tflgpu.model.tensor_info import Quantization, TensorInfo


def test_help_lists_the_verbs() -> None:
    text = succeed("--help")
    assert all(verb in text for verb in ("devices", "inspect", "run", "benchmark", "profile", "diff", "show", "demo"))


def test_version() -> None:
    assert succeed("--version").strip() == tflgpu.__version__


def test_devices(device: tflgpu.Device) -> None:
    listed = as_json("devices")
    assert [d["name"] for d in listed] == [d.name for d in tflgpu.devices()]
    assert listed[0]["memory"] == device.memory
    assert device.type in succeed("devices")


def test_devices_without_any(no_device: None) -> None:
    message = fail("devices")
    assert "no OpenCL device was found" in message
    assert 'pip install "intel-opencl-rt' in message


def test_run_image(device: tflgpu.Device, digit: Path, tmp_path: Path, held_out: tuple[np.ndarray, np.ndarray]) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("\n".join(f"[digit {i}]" for i in range(10)))
    arguments = ("run", MODEL, digit, "--mean", 0, "--std", 255, "--labels", labels, "--top", 3)
    output = as_json(*arguments)["outputs"][0]
    assert output["top"][0]["index"] == held_out[1][0] == 7
    assert len(output["top"]) == 3
    scores = [s["score"] for s in output["top"]]
    assert scores == sorted(scores, reverse=True)
    text = succeed(*arguments)
    assert "[digit 7]" in text
    assert "probabilities  1x10 float32" in text


def test_run_writes_outputs(device: tflgpu.Device, tmp_path: Path, held_out: tuple[np.ndarray, np.ndarray]) -> None:
    image = held_out[0][:1, :, :, None] / np.float32(16)
    np.save(tmp_path / "image.npy", image)
    written = as_json("run", MODEL, tmp_path / "image.npy", "--output", tmp_path / "out")["files"]
    assert written == [str(tmp_path / "out" / "0_probabilities.npy")]
    with tflgpu.compile(MODEL) as model:
        np.testing.assert_array_equal(np.load(written[0]), model.run(image)["probabilities"])


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_run_prints_what_a_detector_finds(device: tflgpu.Device, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    scores = np.array([[[0, 0.25, 0.5], [0, 0.125, 0.0], [0, 0.75, 0.0]]], np.float32)  # class 0 is the background
    np.save(tmp_path / "boxes.npy", np.zeros((1, 3, 4), np.float32))
    np.save(tmp_path / "scores.npy", scores)
    (tmp_path / "labels.txt").write_text("cat\ndog\nbird")
    arguments = ("run", detector_model(tmp_path / "m.tflite"), tmp_path / "boxes.npy", tmp_path / "scores.npy")
    found = as_json(*arguments, "--labels", tmp_path / "labels.txt")
    assert found["detections"] == [
        {"index": 0, "label": "cat", "score": 0.75, "box": [0.625, 0.25, 0.875, 0.75]},
        {"index": 1, "label": "dog", "score": 0.5, "box": [0.125, 0.25, 0.375, 0.75]},
    ]
    assert not any(output["top"] for output in found["outputs"]), "they are no classes' scores"
    text = succeed(*arguments, "--labels", tmp_path / "labels.txt", "--top", 1)
    assert "cat" in text and "dog" not in text
    assert [d["label"] for d in as_json(*arguments)["detections"]] == [None, None]


@pytest.mark.parametrize("content", [b"", b"text"])
def test_run_refuses_damaged_arrays(device: tflgpu.Device, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    assert "x.npy is not an array" in fail("run", MODEL, tmp_path / "x.npy")


def test_user_errors(device: tflgpu.Device, digit: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "wrong.npy", np.zeros((2, 2), np.float32))
    (tmp_path / "short.txt").write_text("only one label")
    assert fail("run", tmp_path / "none.tflite", digit) == f"{tmp_path}/none.tflite: No such file or directory"
    assert "not a TensorFlow Lite model" in fail("run", digit, digit)
    assert "cannot identify image file" in fail("run", MODEL, tmp_path / "short.txt")
    assert "[2, 2]" in fail("run", MODEL, tmp_path / "wrong.npy")
    assert "2 inputs were given; the model has 1" in fail("run", MODEL, digit, digit)
    assert "has 1 labels" in fail("run", MODEL, digit, "--labels", tmp_path / "short.txt")
    assert "std is 0" in fail("run", MODEL, digit, "--std", 0)
    assert "no OpenCL device matches 'nosuch'" in fail("run", MODEL, digit, "--device", "nosuch")
    assert "2 inputs were given" in fail("diff", MODEL, digit, digit)


def test_an_unsupported_model_is_one_line(
    device: tflgpu.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_litert(monkeypatch)
    message = fail("benchmark", unsupported_model(tmp_path / "m.tflite"))
    assert "\n" not in message
    assert f"{WITHOUT_KERNEL} has no kernel" in message


def test_vectors_are_ranked_and_others_are_not() -> None:
    info = TensorInfo("scores", (1, 1, 3), "uint8", Quantization((0.5,), (10,), 0))
    summary = summarize(info, np.array([[[10, 14, 12]]], np.uint8), ["a", "b", "c"], 2)
    assert [(s.index, s.label, s.score) for s in summary.top] == [(1, "b", 2.0), (2, "c", 1.0)]
    assert (summary.minimum, summary.maximum) == (0.0, 2.0)
    matrix = summarize(TensorInfo("m", (2, 2), "float32", None), np.eye(2, dtype=np.float32), [], 2)
    assert matrix.top == ()


def test_output_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    paths = save(tmp_path / "out", {"../../evil": np.zeros(1), "a/b:0": np.ones(1), "x" * 500: np.ones(1)})
    assert [p.parent for p in paths] == [tmp_path / "out"] * 3
    assert sorted((tmp_path / "out").iterdir()) == sorted(paths)
    assert not list(tmp_path.glob("*.npy"))


def test_demo_is_right(device: tflgpu.Device, held_out: tuple[np.ndarray, np.ndarray]) -> None:
    result = as_json("demo", "--precision", "fp32")
    own, *others = result["answers"]
    assert np.mean(np.array(own["predictions"]) == held_out[1]) == own["accuracy"] > 0.98
    assert all(o["predictions"] == own["predictions"] for o in others)


@pytest.mark.parametrize(
    "fault", [ValueError("LiteRT cannot run this model: crashed (SIGSEGV)"), ImportError("no GLIBC")]
)
def test_demo_without_a_peer_that_crashes(
    device: tflgpu.Device, fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise fault

    pytest.importorskip("ai_edge_litert")
    monkeypatch.setattr("tflgpu.cli.commands.demo.LiteRT", crash)
    result = invoke("demo", "--json")
    assert [a["engine"] for a in json.loads(result.stdout)["answers"]] == ["tflgpu"]
    assert f"LiteRT is left out: {fault}" in result.stderr
    assert "357" in succeed("demo")


def test_demo_fits_a_plain_terminal(device: tflgpu.Device, columns: Callable[[int], None]) -> None:
    columns(80)
    text = succeed("demo")
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "MUL + ADD + ADD" in text
    assert "read as 7" in text


def test_python_runs_the_package() -> None:
    done = subprocess.run([sys.executable, "-m", "tflgpu", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, tflgpu.__version__)


def test_help_names_nothing_that_a_wheel_lacks() -> None:
    for verb in ((), *((v,) for v in VERBS), ("evaluate", "coco"), ("cache", "verify")):
        assert not re.search(r"\b(docs|tests|scripts|benchmarks|cache_format)/|\.md\b|\.py\b", succeed(*verb, "--help"))


@pytest.mark.parametrize("spelling", ["fp16_fast", "fp16-fast"])
def test_both_spellings_of_a_choice(device: tflgpu.Device, spelling: str) -> None:
    assert "half storage" in succeed("show", MODEL, "--stage", "plan", "--precision", spelling)
    assert "'fp16_fast'" in invoke("show", MODEL, "--precision", "fp17").stderr
    assert "fp16_fast" in succeed("show", "--help").replace("\n", "")


def test_notices_of_native_code_are_left_out_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    with without_notices():
        os.write(2, b"INFO: Created a delegate\nERROR: no memory\n")
    os.write(2, b"INFO: later\n")
    assert capfd.readouterr().err == "ERROR: no memory\nINFO: later\n"
