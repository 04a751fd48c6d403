"""``tflgpu profile``."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, invoke


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
    result = invoke("profile", MODEL, "--runs", 1, "--trace", tmp_path / "trace.json")
    assert result.exit_code == 0, result.output
    assert re.search(r"# +operators +kernel +us +share +GB/s +GFLOP/s", result.stdout)
    assert "ui.perfetto.dev" in result.stderr and "wrote" not in result.stdout, "it is no data"
