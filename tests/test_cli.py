"""The command line, on the digits of ``examples/``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import tflgpu
from tflgpu.api import TensorInfo, plan_model
from tflgpu.cli import app, litert
from tflgpu.cli.console import console
from tflgpu.cli.demo import examples_folder
from tflgpu.cli.inputs import read_input
from tflgpu.cli.outputs import save, summarize
from tflgpu.cli.timing import ROUNDS, measure
from tflgpu.codegen import render
from tflgpu.report import make_report
from tflgpu.tflite import Quantization
from tflgpu.writer import ModelBuilder

DIGITS = examples_folder() / "digits"
MODEL = DIGITS / "digits.tflite"


@pytest.fixture
def device() -> tflgpu.Device:
    """The best device. Without one a test is skipped, but on CI it fails."""
    if tflgpu.devices():
        return tflgpu.devices()[0]
    if os.environ.get("CI"):
        pytest.fail("no OpenCL device was found, and CI must have one")
    pytest.skip("no OpenCL device was found")


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tflgpu, "devices", tuple)
    monkeypatch.setattr("tflgpu.runtime.devices.devices", tuple)


@pytest.fixture
def held_out() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DIGITS / "held_out.npz") as data:
        return data["images"], data["labels"]


@pytest.fixture
def digit(tmp_path: Path, held_out: tuple[np.ndarray, np.ndarray]) -> Path:
    """The first held-out digit as an image four times its size, so that it must be resized."""
    path = tmp_path / "digit.png"
    grey = np.rint(held_out[0][0] * (255 / 16)).astype(np.uint8)
    Image.fromarray(grey).resize((32, 32), Image.Resampling.NEAREST).save(path)
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def succeed(*arguments: object) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(*arguments: object) -> Any:
    return json.loads(succeed(*arguments, "--json"))


def fail(*arguments: object) -> str:
    """The message of a command that must fail as commands do for their users: one line, nothing on stdout."""
    result = invoke(*arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    return result.stderr.removeprefix("error: ").rstrip("\n")


def unsupported_model(path: Path) -> Path:
    builder = ModelBuilder()
    x = builder.input((1, 4), name="x")
    y, z = builder.tensor((1, 4), name="y"), builder.tensor((1, 4), name="z")
    builder.op("Resampler", [x], [y])
    builder.op("RELU", [y], [z])
    path.write_bytes(builder.finish([z]))
    return path


def test_help_lists_the_verbs() -> None:
    text = succeed("--help")
    assert all(verb in text for verb in ("devices", "inspect", "run", "benchmark", "show", "demo"))


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
    assert "tflgpu[cpu]" in message


def test_inspect_needs_no_device(no_device: None) -> None:
    report = tflgpu.inspect(MODEL)
    assert as_json("inspect", MODEL) == json.loads(json.dumps(report.as_dict()))
    text = succeed("inspect", MODEL)
    assert all(o.code in text for o in report.operators)
    assert "16 of 16 operators" in text


def test_inspect_gives_reasons(tmp_path: Path) -> None:
    path = unsupported_model(tmp_path / "m.tflite")
    text = " ".join(succeed("inspect", path, "--device", "auto").split())
    assert "Resampler has no kernel" in text
    assert "1 of 2 operators can run on the device; the others: 1 Resampler" in text


def test_inspect_for_a_device(device: tflgpu.Device) -> None:
    lowered, plan = plan_model(MODEL.read_bytes(), tflgpu.Options(), device)
    expected = make_report(lowered, [plan])
    assert as_json("inspect", MODEL, "--device", device.index) == json.loads(json.dumps(expected.as_dict()))
    assert f"{expected.kernels} kernels" in succeed("inspect", MODEL, "--device", device.index)


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
    assert "--std is 0" in fail("run", MODEL, digit, "--std", 0)
    assert "no OpenCL device matches 'nosuch'" in fail("run", MODEL, digit, "--device", "nosuch")
    assert "--litert too" in fail("benchmark", MODEL, "--threads", 2)


def test_an_unsupported_model_is_one_line(device: tflgpu.Device, tmp_path: Path) -> None:
    message = fail("benchmark", unsupported_model(tmp_path / "m.tflite"))
    assert "\n" not in message
    assert "Resampler has no kernel" in message


@pytest.mark.parametrize(("dtype", "zero_point"), [("uint8", 0), ("int8", -128)])
def test_images_are_quantized(tmp_path: Path, dtype: str, zero_point: int) -> None:
    """0..1 in 255 steps: the pixels pass through, but for the zero point."""
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 15
    Image.fromarray(pixels).save(tmp_path / "image.png")
    info = TensorInfo("image", (1, 2, 3, 3), dtype, Quantization((1 / 255,), (zero_point,), 0))
    array = read_input(tmp_path / "image.png", info, mean=0, std=255)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array[0].astype(int), pixels.astype(int) + zero_point)


def test_no_image_fits_a_vector(digit: Path) -> None:
    with pytest.raises(ValueError, match="which no image fits"):
        read_input(digit, TensorInfo("x", (1, 4), "float32", None), 0, 1)


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


def test_engines_take_turns() -> None:
    calls: list[str] = []
    latency = measure({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, runs=2 * ROUNDS, min_seconds=0)
    assert "".join(calls) == "aaabbb" * ROUNDS  # a warm-up and two runs each turn
    assert latency["a"].runs == latency["b"].runs == 2 * ROUNDS
    assert 0 < latency["a"].p10 <= latency["a"].median <= latency["a"].p90


def test_benchmark(device: tflgpu.Device) -> None:
    result = as_json("benchmark", MODEL, "--runs", 20, "--min-seconds", 0, "--profile", "--precision", "fp16")
    assert result["precision"] == "fp16"
    assert result["tflgpu_seconds"]["runs"] == 20
    assert "build" in result["init_seconds"]
    _, plan = plan_model(MODEL.read_bytes(), tflgpu.Options(precision="fp16"), device)
    assert len(result["kernels"]) == len(plan.kernels)
    residual = next(k for k in result["kernels"] if k["operators"] == ["CONV_2D", "MUL", "ADD", "ADD"])
    assert residual["gflops"] == pytest.approx(2e-9 * 8 * 8 * 32 * 32 * 9 / residual["seconds"])
    assert result["memory_bytes"]["arena"] >= result["memory_bytes"]["arena_lower_bound"] > 0


def test_benchmark_beside_litert(device: tflgpu.Device) -> None:
    pytest.importorskip("ai_edge_litert")
    arguments = ("benchmark", MODEL, "--runs", 20, "--min-seconds", 0, "--litert", "--threads", 1)
    result = as_json(*arguments)
    assert result["litert"]["threads"] == 1
    medians = result["litert_seconds"]["median"], result["tflgpu_seconds"]["median"]
    assert result["litert_over_tflgpu"] == pytest.approx(medians[0] / medians[1])
    assert "than LiteRT" in succeed(*arguments)


def test_litert_is_asked_for_by_name(device: tflgpu.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litert, "is_installed", lambda: False)
    assert "tflgpu[fallback]" in fail("benchmark", MODEL, "--litert")


def test_show_graph_needs_no_device(no_device: None) -> None:
    lines = succeed("show", MODEL).splitlines()
    start = next(i for i, line in enumerate(lines) if "3 CONV_2D, 4 MUL, 5 ADD, 6 ADD" in line)
    assert [line.split(" = ")[1].split("(")[0] for line in lines[start - 2 : start]] == ["add", "relu"]
    graph = as_json("show", MODEL)
    residual = next(n for n in graph["nodes"] if n["operators"] == [3, 4, 5, 6])
    assert residual["steps"][0]["operands"] == ["inputs[3]", "v0"]
    assert graph["tensors"][str(graph["outputs"][0])]["name"] == "probabilities"


def test_show_graph_of_an_unsupported_model(tmp_path: Path) -> None:
    assert "Resampler" in fail("show", unsupported_model(tmp_path / "m.tflite"))


def test_show_plan(device: tflgpu.Device) -> None:
    _, expected = plan_model(MODEL.read_bytes(), tflgpu.Options(precision="fp16"), device)
    plan = as_json("show", MODEL, "--stage", "plan", "--precision", "fp16")
    assert plan["target"]["storage"] == "half"
    assert [k["tiles"] for k in plan["kernels"]] == [k.kernel.tiles for k in expected.kernels]
    places = [a["place"] for k in plan["kernels"] for a in k["arguments"]]
    assert places.count("input") == places.count("output") == 1
    assert all((a["arena_offset"] is None) == (a["place"] != "arena") for k in plan["kernels"] for a in k["arguments"])
    text = succeed("show", MODEL, "--stage", "plan", "--precision", "fp16")
    assert all(k.kernel.template in text for k in expected.kernels)


def test_show_source(device: tflgpu.Device) -> None:
    _, plan = plan_model(MODEL.read_bytes(), tflgpu.Options(), device)
    source = render(plan)
    assert succeed("show", MODEL, "--stage", "source").strip() == source.text.strip()
    assert as_json("show", MODEL, "--stage", "source")["launches"] == list(source.names)


def test_demo_is_right(device: tflgpu.Device, held_out: tuple[np.ndarray, np.ndarray]) -> None:
    result = as_json("demo", "--precision", "fp32")
    own, *others = result["answers"]
    assert np.mean(np.array(own["predictions"]) == held_out[1]) == own["accuracy"] > 0.98
    assert all(o["predictions"] == own["predictions"] for o in others)


def test_demo_fits_a_plain_terminal(device: tflgpu.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 80)
    text = succeed("demo")
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert "CONV_2D + MUL + ADD + ADD" in text
    assert "read as 7" in text
