"""``tflgpu diff``: errors, bisection, and how they are counted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, invoke, succeed
from tests.support.models import Builder
from tflgpu.evaluate.accuracy import Deviation
from tflgpu.model.tensor_info import Quantization
from tflgpu.model.writer import ModelBuilder


def overflowing_model(path: Path, factors: tuple[float, ...] = (1e3, 1e3, 1e-6)) -> Path:
    """Half precision cannot store its second product, though its result is small."""
    builder = ModelBuilder()
    x, (large, larger, small) = (
        builder.input((1, 4, 4, 4), name="x"),
        (builder.tensor((1, 4, 4, 4), name=name) for name in ("large", "larger", "small")),
    )
    kernels = [np.eye(4, dtype=np.float32).reshape(4, 1, 1, 4) * factor for factor in factors]
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
    lines += [
        r"Test run latency: avg=",
        r"OutputDiff\[0\]: avg_error=[\d.e-]+, std_dev=0$",
        "$",
        " *# +output +max error",
    ]
    lines += ["─+$", r" *0 +probabilities .* value +same$", "$", "PASS every output is within 0.001 of its range$"]
    for line, pattern in zip(text.splitlines(), lines, strict=True):
        assert re.match(pattern, line), line


def test_diff_fails_past_the_tolerance(device: tflgpu.Device) -> None:
    pytest.importorskip("ai_edge_litert")
    arguments = ("diff", MODEL, "--precision", "fp16", "--runs", 1)
    assert as_json(*arguments)["tolerance"] == 0.05
    result = invoke(*arguments, "--tolerance", 1e-9)
    assert result.exit_code == 1
    assert "FAIL 1 of 1 output differ by more than 1e-09 of their range; probabilities by" in result.stdout
    assert "the inputs were random" in result.stderr and "--bisect" in result.stderr
    found = as_json(*arguments, "--tolerance", 1e-9, exit_code=1)
    assert not found["passed"] and [o["passed"] for o in found["outputs"]] == [False]


def test_quantized_models_may_round_apart(device: tflgpu.Device, shared: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    model = shared / "models" / "kws_ref_model.tflite"
    assert as_json("diff", model, "--runs", 1, "--precision", "fp32")["tolerance"] == 0.05


def test_diff_finds_the_first_overflow(device: tflgpu.Device, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    repaired = overflowing_model(tmp_path / "repaired.tflite")
    found = as_json("diff", repaired, "--runs", 1, "--precision", "fp16", "--bisect")
    assert found["precision"] == "mixed" and found["bisection"]["first"] is None  # as the check has repaired it
    assert [t["tensor"] for t in found["bisection"]["tensors"]] == ["large", "larger", "small"]
    path = overflowing_model(tmp_path / "m.tflite", (30.0, 30.0, 1e-3))
    large = np.linspace(-500, 500, 64, dtype=np.float32)  # as nobody could foresee
    np.save(tmp_path / "large.npy", large.reshape(1, 4, 4, 4))
    arguments = ("diff", path, tmp_path / "large.npy", "--runs", 1, "--bisect", "--precision")
    found = as_json(*arguments, "fp16", exit_code=1)["bisection"]
    assert found["first"]["tensor"] == "larger"
    assert found["first"]["operators"] == ["1 CONV_2D"]
    assert found["first"]["max_error"] > 3e5  # the device has the greatest half instead
    assert [t["tensor"] for t in found["tensors"]] == ["large", "larger", "small"]
    assert "first off by more than 0.05 of its range: larger, kernel" in invoke(*arguments, "fp16").stdout
    assert as_json(*arguments, "fp32")["bisection"]["first"] is None
    assert "no tensor is off by more than 0.001" in succeed(*arguments, "fp32")


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_bisection_passes_through_the_cpu(tmp_path: Path, device: tflgpu.Device) -> None:
    pytest.importorskip("ai_edge_litert")
    builder, path = Builder(), tmp_path / "m.tflite"
    before = builder.add("LOGISTIC", [builder.input((1, 4))], (1, 4), name="before")
    back = builder.without_kernel(builder.without_kernel(before))
    path.write_bytes(builder.finish([builder.add("TANH", [back], (1, 4), name="after")]))
    tensors = as_json("diff", path, "--runs", 2, "--bisect")["bisection"]["tensors"]
    assert [t["tensor"] for t in tensors] == ["before", "after"]
    assert all(t["relative_error"] < 1e-5 for t in tensors)


def test_bisection_passes_variables_and_integers(device: tflgpu.Device, shared: Path) -> None:
    """Handles of variables may be read by none."""
    pytest.importorskip("ai_edge_litert")
    found = as_json("diff", shared / "models" / "hey_jarvis.tflite", "--runs", 2, "--bisect", "--tolerance", 1)
    assert len(found["bisection"]["tensors"]) > 10
    assert {output["unit"] for output in found["outputs"]} == {"quanta"}


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


def joined_of_other_scales(path: Path) -> Path:
    """A concatenation whose integers LiteRT copies, although they stand for other numbers; another output is a copy."""
    builder, grids = ModelBuilder(), [Quantization((scale,), (0,)) for scale in (0.02, 0.05, 0.04)]
    x, y = (builder.input((1, 6), "int16", quantization=grid) for grid in grids[:2])
    copy = builder.tensor((6,), "int16", name="copy", quantization=grids[0])
    joined = builder.tensor((1, 12), "int16", quantization=grids[2])
    builder.op("RESHAPE", [x, builder.constant(np.array([6], np.int32))], [copy])
    builder.op("CONCATENATION", [x, y], [joined], {"axis": 1})
    result = builder.tensor((12,), "int16", name="result", quantization=grids[2])
    builder.op("RESHAPE", [joined, builder.constant(np.array([12], np.int32))], [result])
    path.write_bytes(builder.finish([copy, result]))
    return path


def test_diff_knows_where_litert_is_further_from_the_exact_answer(device: tflgpu.Device, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    model = joined_of_other_scales(tmp_path / "joined.tflite")
    found = as_json("diff", model, "--runs", 2)
    copy, result = found["outputs"]
    assert copy["passed"] and not copy["nearer"]
    assert not result["passed"] and result["nearer"].startswith("operator 1 CONCATENATION (int16, inputs of other")
    assert found["passed"]
    assert "PASS every output is within 0.05 of its range, or nearer" in succeed("diff", model, "--runs", 1)
