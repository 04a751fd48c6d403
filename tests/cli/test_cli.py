"""The command line, on the digits of ``examples/``."""

from __future__ import annotations

import json
import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

import tflgpu
from tflgpu.cli import app, litert_peer
from tflgpu.cli.accuracy import Deviation
from tflgpu.cli.commands.demo import examples_folder
from tflgpu.cli.console import console
from tflgpu.cli.inputs import random_input, read_input
from tflgpu.cli.outputs import save, summarize
from tflgpu.cli.timing import ROUNDS, measure
from tflgpu.codegen.render import render
from tflgpu.compiler import plan_model
from tflgpu.model.tensor_info import Quantization, TensorInfo
from tflgpu.model.writer import ModelBuilder

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
    monkeypatch.setattr("tflgpu.runtime.opencl.devices.devices", tuple)


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
    """BITCAST, which has no kernel for the device, before something that has."""
    builder = ModelBuilder()
    x, bits = builder.input((1, 4), name="x"), builder.tensor((1, 4), "int32", name="bits")
    y, z = builder.tensor((1, 4), name="y"), builder.tensor((1, 4), name="z")
    builder.op("BITCAST", [x], [bits])
    builder.op("BITCAST", [bits], [y])
    builder.op("RELU", [y], [z])
    path.write_bytes(builder.finish([z]))
    return path


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
    assert "tflgpu[cpu]" in message


def test_inspect_needs_no_device(no_device: None) -> None:
    text = succeed("inspect", MODEL)
    assert "float32, 16 operators" in text
    assert re.search(r"input +image +1x8x8x1 +float32", text)
    assert re.search(r"output +probabilities +1x10 +float32", text)
    assert re.search(r"CONV_2D +\d+ +device", text)
    assert "all 16 operators can run on the device" in text
    assert "why not" not in text


def test_inspect_lists_every_operator(no_device: None) -> None:
    text = succeed("inspect", MODEL, "--operators")
    for o in tflgpu.inspect(MODEL).operators:
        assert re.search(rf"^ *{o.index} +{o.code} +{o.version} +device", text, re.MULTILINE)


def test_inspect_gives_reasons(tmp_path: Path) -> None:
    """Of a model in pieces too, for a device as well as without one."""
    path = unsupported_model(tmp_path / "m.tflite")
    for arguments in ((), ("--device", "auto")):
        text = " ".join(succeed("inspect", path, *arguments).split())
        assert "BITCAST has no kernel" in text
        assert "1 of 3 operators can run on the device in 1 partition, 2 on the CPU, 16 bytes cross" in text
        assert "without 2 BITCAST (operators 0, 1) it would be none" in text


def test_inspect_takes_options(no_device: None) -> None:
    names = [tflgpu.inspect(MODEL).operators[i].outputs[0] for i in (1, 3)]
    report = tflgpu.inspect(MODEL, tflgpu.Options(outputs=names, cpu_ops=[0]))
    assert [i.name for i in report.model.outputs] == names
    assert [o.index for o in report.operators if o.device == "cpu"] == [0]
    assert "'nosuch'" in fail("inspect", MODEL, "--signature", "nosuch")


def test_inspect_knows_what_runs_nowhere(shared: Path) -> None:
    path = shared / "models" / "invalid" / "model_invoking_error.tflite"
    assert "known neither to tflgpu nor to LiteRT" in " ".join(succeed("inspect", path).split())
    assert as_json("inspect", path)["operators"][0]["device"] == "unsupported"


def test_inspect_refuses_what_is_no_model(shared: Path) -> None:
    for name in ("empty", "random_bytes", "text_file", "tfl3_header_bad_offsets", "truncated"):
        message = fail("inspect", shared / "models" / "invalid" / f"{name}.tflite")
        assert re.search(r"model is empty|not a TensorFlow Lite model|model is damaged", message)


def test_inspect_explains_every_real_model(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", 500)  # nothing is broken into lines
    paths = sorted((shared / "models").glob("*.tflite"))
    assert len(paths) >= 30
    for path in paths:
        report = tflgpu.inspect(path)
        text = succeed("inspect", path)
        assert report.model.kind in text
        assert all(o.code in text for o in report.operators), path.name
        assert all(i.name in text for i in (*report.model.inputs, *report.model.outputs)), path.name


def test_inspect_for_a_device(device: tflgpu.Device) -> None:
    with tflgpu.compile(MODEL, tflgpu.Options(device=device.index)) as compiled:
        expected = compiled.report
    found = as_json("inspect", MODEL, "--device", device.index)
    assert {key: found[key] for key in expected.as_dict()} == json.loads(json.dumps(expected.as_dict()))
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
    assert "2 inputs were given" in fail("diff", MODEL, digit, digit)


def test_an_unsupported_model_is_one_line(
    device: tflgpu.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tflgpu.frontend.frontend.is_installed", lambda: False)
    message = fail("benchmark", unsupported_model(tmp_path / "m.tflite"))
    assert "\n" not in message
    assert "BITCAST has no kernel" in message


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
    assert "build" in result["init_seconds"]["cold"]
    _, plan = plan_model(
        MODEL.read_bytes(), tflgpu.Options(precision="fp16"), device.target(tflgpu.Options(precision="fp16"))
    )
    assert len(result["kernels"]) == len(plan.kernels)
    residual = next(k for k in result["kernels"] if k["operators"] == ["CONV_2D", "MUL", "ADD", "ADD"])
    assert residual["gflops"] == pytest.approx(2e-9 * 8 * 8 * 32 * 32 * 9 / residual["seconds"])
    assert result["memory_bytes"]["arena"] >= result["memory_bytes"]["arena_lower_bound"] > 0


def test_tuning_is_an_option(device: tflgpu.Device) -> None:
    arguments = ("benchmark", MODEL, "--runs", 1, "--min-seconds", 0, "--tuning")
    assert "tune" in as_json(*arguments, "fast")["init_seconds"]["cold"]
    assert "tune" not in as_json(*arguments, "none")["init_seconds"]["cold"]


def test_profile(device: tflgpu.Device, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    result = as_json("profile", MODEL, "--runs", 3, "--precision", "fp32", "--trace", trace)
    kernels = result["kernels"]
    assert result["seconds"] == pytest.approx(sum(k["seconds"] for k in kernels))
    residual = next(k for k in kernels if k["operators"] == ["CONV_2D", "MUL", "ADD", "ADD"])
    image, weights, bias = 8 * 8 * 32, 9 * 32 * 32, 32
    assert residual["bytes"] == 4 * (2 * image + weights + bias), "the image that it reads twice counts once"
    assert residual["gb_per_second"] == pytest.approx(1e-9 * residual["bytes"] / residual["seconds"])

    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["name"]: e["args"]["name"] for e in events if e["ph"] == "M"} == {
        "process_name": MODEL.name,
        "thread_name": f"{device.name}, fp32",
    }
    drawn = [e for e in events if e["ph"] == "X"]
    assert [(e["ts"], e["dur"]) for e in drawn] == [
        (pytest.approx(1e6 * k["begin"]), pytest.approx(1e6 * k["seconds"])) for k in kernels
    ]
    assert drawn[0]["ts"] == 0
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in pairwise(drawn)), "launches do not overlap"
    assert [e["args"]["level"] for e in drawn] == sorted(e["args"]["level"] for e in drawn)


def test_profile_as_a_table(device: tflgpu.Device, tmp_path: Path) -> None:
    text = succeed("profile", MODEL, "--runs", 1, "--trace", tmp_path / "trace.json")
    assert re.search(r"# +operators +kernel +us +share +GB/s +GFLOP/s", text)
    assert "ui.perfetto.dev" in text


def test_benchmark_beside_litert(device: tflgpu.Device) -> None:
    pytest.importorskip("ai_edge_litert")
    arguments = ("benchmark", MODEL, "--runs", 20, "--min-seconds", 0, "--litert", "--threads", 1)
    result = as_json(*arguments)
    assert result["litert"]["threads"] == 1
    medians = result["litert_seconds"]["median"], result["tflgpu_seconds"]["median"]
    assert result["litert_over_tflgpu"] == pytest.approx(medians[0] / medians[1])
    assert "than LiteRT" in succeed(*arguments)


def test_litert_is_asked_for_by_name(device: tflgpu.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litert_peer, "is_installed", lambda: False)
    assert "tflgpu[fallback]" in fail("benchmark", MODEL, "--litert")
    assert "tflgpu[fallback]" in fail("diff", MODEL)


def overflowing_model(path: Path) -> Path:
    """Half precision cannot store its second product, though its result is small."""
    builder = ModelBuilder()
    x, (large, larger, small) = (
        builder.input((1, 4, 4, 4), name="x"),
        (builder.tensor((1, 4, 4, 4), name=name) for name in ("large", "larger", "small")),
    )
    kernels = [np.eye(4, dtype=np.float32).reshape(4, 1, 1, 4) * factor for factor in (1e3, 1e3, 1e-6)]
    bias = builder.constant(np.zeros(4, np.float32))
    for source, kernel, result in zip((x, large, larger), kernels, (large, larger, small), strict=True):
        options = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
        builder.op("CONV_2D", [source, builder.constant(kernel), bias], [result], options)
    path.write_bytes(builder.finish([small]))
    return path


def test_diff(device: tflgpu.Device, digit: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    found = as_json("diff", MODEL, "--precision", "fp32", "--runs", 3)
    (output,) = found["outputs"]
    assert 0 <= output["avg_error"] <= output["max_error"] < 1e-5
    assert found["reference_seconds"]["avg"] > 0
    assert found["runs"] == 3
    assert found["bisection"] is None
    again = as_json("diff", MODEL, "--precision", "fp32", "--runs", 3)
    assert again["outputs"] == found["outputs"]  # the inputs are the same
    text = succeed("diff", MODEL, digit, "--mean", 0, "--std", 255, "--runs", 1)
    lines = [r"Num evaluation runs: 1", r"Reference run latency: avg=[\d.e+]+\(us\), std_dev=[\d.e+]+\(us\)"]
    lines += [r"Test run latency: avg=", r"OutputDiff\[0\]: avg_error=[\d.e-]+, std_dev=0, max="]
    for line, pattern in zip(text.splitlines(), lines, strict=True):
        assert re.match(pattern, line)


def test_diff_fails_past_a_bound_that_is_given(device: tflgpu.Device) -> None:
    pytest.importorskip("ai_edge_litert")
    arguments = ("diff", MODEL, "--precision", "fp16", "--runs", 1)
    succeed(*arguments, "--bound", 0.1)
    result = invoke(*arguments, "--bound", 1e-9)
    assert result.exit_code == 1
    assert "OutputDiff" in result.stdout


def test_diff_finds_the_first_overflow(device: tflgpu.Device, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = overflowing_model(tmp_path / "m.tflite")
    arguments = ("diff", path, "--runs", 1, "--bisect", "--precision")
    found = as_json(*arguments, "fp16")["bisection"]
    assert found["first"]["tensor"] == "larger"
    assert found["first"]["operators"] == ["1 CONV_2D"]
    assert found["first"]["max_error"] > 6e5  # the device has the greatest half instead
    assert [t["tensor"] for t in found["tensors"]] == ["large", "larger", "small"]
    assert "first past the bound 0.02 of its range: larger, kernel" in " ".join(succeed(*arguments, "fp16").split())
    assert as_json(*arguments, "fp32")["bisection"]["first"] is None
    assert "no tensor is past the bound" in succeed(*arguments, "fp32")


def test_bisection_passes_through_the_cpu(device: tflgpu.Device, shared: Path) -> None:
    """Past operators that only the CPU has, variables (whose handles nobody may read), and rounding to integers."""
    pytest.importorskip("ai_edge_litert")
    detector = shared / "models" / "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite"
    found = as_json("diff", detector, "--runs", 1, "--bisect")
    assert found["bisection"]["kernels"] > 50
    assert all(t["relative_error"] < 0.2 for t in found["bisection"]["tensors"])
    stream = as_json("diff", shared / "models" / "hey_jarvis.tflite", "--runs", 2, "--bisect")
    assert stream["outputs"][0]["unit"] == "quanta"
    assert len(stream["bisection"]["tensors"]) > 10


def test_errors_of_what_is_no_number() -> None:
    same, worse = Deviation(), Deviation()
    odd = np.array([1.0, np.nan, np.inf, -np.inf])
    same.add(odd, odd)
    assert (same.max_error, same.avg_error, same.relative) == (0, 0, 0)
    worse.add(odd, np.array([1.0, 2.0, np.inf, np.inf]))
    assert worse.max_error == np.inf
    assert worse.extent == 1  # of the finite values and zero


def test_two_quanta_pass() -> None:
    quantized = Deviation(0.5)
    quantized.add(np.array([0.0, 5.0]), np.array([1.0, 5.0]))
    assert (quantized.max_error, quantized.extent, quantized.relative) == (2, 10, 0)
    quantized.add(np.array([0.0, 5.0]), np.array([1.5, 5.0]))
    assert quantized.relative == pytest.approx(0.3)
    assert quantized.avg_error == pytest.approx(1.25)
    assert quantized.std_dev == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("dtype", "low", "high"), [("float32", -1, 1), ("int8", -128, 127), ("int32", 0, 1), ("bool", 0, 1)]
)
def test_random_inputs_fill_their_range(dtype: str, low: float, high: float) -> None:
    drawn = random_input(TensorInfo("x", (50, 1000), dtype, None), np.random.default_rng(0)).astype(np.float64)
    assert low <= drawn.min() <= low + 0.01 * (high - low)
    assert high - 0.01 * (high - low) <= drawn.max() <= high
    assert drawn.mean() == pytest.approx((low + high) / 2, abs=0.01 * (high - low))


def test_show_graph_needs_no_device(no_device: None) -> None:
    lines = succeed("show", MODEL).splitlines()
    start = next(i for i, line in enumerate(lines) if "3 CONV_2D, 4 MUL, 5 ADD, 6 ADD" in line)
    assert [line.split(" = ")[1].split("(")[0] for line in lines[start - 2 : start]] == ["add", "relu"]
    graph = as_json("show", MODEL)
    residual = next(n for n in graph["nodes"] if n["operators"] == [3, 4, 5, 6])
    assert residual["steps"][0]["operands"] == ["inputs[3]", "v0"]
    assert graph["tensors"][str(graph["outputs"][0])]["name"] == "probabilities"


def test_show_graph_of_an_unsupported_model(tmp_path: Path) -> None:
    assert "BITCAST" in fail("show", unsupported_model(tmp_path / "m.tflite"))


def test_show_plan(device: tflgpu.Device) -> None:
    _, expected = plan_model(
        MODEL.read_bytes(), tflgpu.Options(precision="fp16"), device.target(tflgpu.Options(precision="fp16"))
    )
    plan = as_json("show", MODEL, "--stage", "plan", "--precision", "fp16")
    assert plan["target"]["storage"] == "half"
    assert [k["tiles"] for k in plan["kernels"]] == [k.kernel.tiles for k in expected.kernels]
    places = [a["place"] for k in plan["kernels"] for a in k["arguments"]]
    assert places.count("input") == places.count("output") == 1
    assert all((a["arena_offset"] is None) == (a["place"] != "arena") for k in plan["kernels"] for a in k["arguments"])
    text = succeed("show", MODEL, "--stage", "plan", "--precision", "fp16")
    assert all(k.kernel.template in text for k in expected.kernels)


def test_show_source(device: tflgpu.Device) -> None:
    _, plan = plan_model(MODEL.read_bytes(), tflgpu.Options(), device.target(tflgpu.Options()))
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
