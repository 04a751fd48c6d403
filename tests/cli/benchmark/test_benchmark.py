"""``tflgpu benchmark`` and ``tflgpu profile``."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, fail, succeed
from tflgpu.cli.timing import ROUNDS, measure
from tflgpu.compiler import plan_model
from tflgpu.evaluate import litert_peer


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
