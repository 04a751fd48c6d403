"""``tflgpu benchmark``."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.cli.command import MODEL, as_json, fail, succeed
from tests.support.packages import hide_litert
from tests.support.planning import plan_of
from tflgpu.cli import measurement
from tflgpu.cli.commands.benchmark import write_csv
from tflgpu.cli.measurement import ROUNDS, Latency, measure, repeat
from tflgpu.cli.tables import node_types
from tflgpu.report.profile import KernelTime

SHORT = ("--num-runs", 20, "--min-secs", 0, "--warmup-min-secs", 0)


def test_engines_take_turns() -> None:
    calls: list[str] = []
    latency = measure({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, runs=2 * ROUNDS, min_seconds=0)
    assert "".join(calls) == "aaabbb" * ROUNDS  # a warm-up and two runs each turn
    assert latency["a"].runs == latency["b"].runs == 2 * ROUNDS


def test_statistics_are_those_of_all_runs() -> None:
    times = np.random.default_rng(0).permutation(101) / 100
    latency = Latency.of(times.tolist())
    assert (latency.runs, latency.min, latency.max) == (101, 0.0, 1.0)
    percentiles = (latency.p5, latency.p10, latency.median, latency.p90, latency.p95, latency.p99)
    np.testing.assert_allclose(percentiles, (0.05, 0.1, 0.5, 0.9, 0.95, 0.99))
    assert latency.avg == pytest.approx(0.5)
    assert latency.std == pytest.approx(np.sqrt((101**2 - 1) / 12) / 100), "of evenly spaced numbers"


@pytest.mark.parametrize(
    ("limits", "runs"), [((3, 0.0), 3), ((0, 0.0), 0), ((0, 2.5), 3), ((9, 9.0, 4.0), 4), ((9, 0.0, 0.0), 1)]
)
def test_runs_are_repeated_for_a_time(limits: tuple[float, ...], runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run takes a second by this clock."""
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def run() -> None:
        clock[0] += 1

    assert repeat(run, *limits) == [1.0] * runs  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Any]]:
    """Everything that can be measured, once for all tests."""
    pytest.importorskip("ai_edge_litert")
    yield as_json("benchmark", MODEL, *SHORT, "--profile", "--precision", "fp16", "--litert", "--num-threads", 1)


def test_a_start_is_cold_and_then_warm(device: tflgpu.Device, found: dict[str, Any]) -> None:
    assert "build" in found["init_seconds"]["cold"] and "plan" in found["init_seconds"]["cold"]
    assert "build" in found["init_seconds"]["warm"] and "plan" not in found["init_seconds"]["warm"]
    assert found["init_seconds"]["warm"]["device"] > 1e-3, "it is a new process, which opens the driver"
    assert found["first_seconds"] == found["tflgpu_seconds"]["first"]
    assert found["warm_first_seconds"] > 0


def test_runs_are_measured(device: tflgpu.Device, found: dict[str, Any]) -> None:
    assert (found["precision"], found["executor"]) == ("fp16", device.executor)
    for times in (found["tflgpu_seconds"], found["litert_seconds"]):
        assert (times["runs"], times["warmup_runs"]) == (20, 1)
        ordered = [times[key] for key in ("min", "p5", "p10", "median", "p90", "p95", "p99", "max")]
        assert ordered == sorted(ordered) and times["first"] == times["warmup_avg"]
    assert found["litert"]["threads"] == 1
    medians = found["litert_seconds"]["median"], found["tflgpu_seconds"]["median"]
    assert found["litert_over_tflgpu"] == pytest.approx(medians[0] / medians[1])


def test_memory_is_of_the_device_and_of_the_process(device: tflgpu.Device, found: dict[str, Any]) -> None:
    memory = found["memory_bytes"]
    assert memory["arena"] >= memory["arena_lower_bound"] > 0
    assert 0 < memory["warm_init"] <= memory["warm_overall"] < memory["resident_peak"]
    assert 0 <= memory["cold_init"] <= memory["cold_overall"] < memory["resident_peak"]


def test_the_peak_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = measurement.peak_resident_bytes()
    assert peak is not None and 0.9 * resident <= peak
    monkeypatch.setattr(measurement, "STATUS", tmp_path / "none")
    by_another_way = measurement.peak_resident_bytes()
    assert by_another_way is not None and 0.9 * peak <= by_another_way


def test_kernels_are_those_of_the_plan(device: tflgpu.Device, found: dict[str, Any]) -> None:
    options = tflgpu.Options(precision="fp16")
    plan = plan_of(MODEL.read_bytes(), device.target(options), options)
    assert len(found["kernels"]) == len(plan.kernels)
    residual = next(k for k in found["kernels"] if k["operators"] == ["CONV_2D", "MUL", "ADD", "ADD"])
    assert residual["gflops"] == pytest.approx(2e-9 * 8 * 8 * 32 * 32 * 9 / residual["seconds"])
    by_type = {t["node_type"]: t for t in found["node_types"]}
    assert by_type["CONV_2D + MUL + ADD + ADD"]["seconds"] == pytest.approx(residual["seconds"])
    assert sum(t["count"] for t in found["node_types"]) == len(plan.kernels)


def test_kernels_of_one_type_are_summed() -> None:
    def kernel(operators: tuple[str, ...], seconds: float) -> KernelTime:
        return KernelTime("k", operators, 0.0, seconds, macs=0, bytes=100, groups=1, local_size=1, level=0, piece=0)

    kernels = [kernel(("ADD",), 1.0), kernel(("CONV_2D", "ADD"), 3.0), kernel((), 0.5), kernel(("ADD",), 2.5)]
    types = [(t.node_type, t.count, t.seconds, t.bytes) for t in node_types(kernels)]
    assert types == [("ADD", 2, 3.5, 200), ("CONV_2D + ADD", 1, 3.0, 100), ("(layout conversion)", 1, 0.5, 100)]


def test_csv_has_a_row_for_each_number(device: tflgpu.Device, found: dict[str, Any]) -> None:
    text = io.StringIO()
    write_csv(found, text)
    rows = list(csv.DictReader(io.StringIO(text.getvalue())))
    assert {row["model"] for row in rows} == {str(MODEL)}
    times = {(row["section"], row["name"]): row for row in rows}
    assert float(times["init cold", "plan"]["seconds"]) == found["init_seconds"]["cold"]["plan"]
    assert float(times["inference", "litert"]["p95"]) == found["litert_seconds"]["p95"]
    assert float(times["inference", "tflgpu"]["seconds"]) == found["tflgpu_seconds"]["avg"]
    assert int(times["memory", "arena"]["bytes"]) == found["memory_bytes"]["arena"]
    kernels = [row for row in rows if row["section"] == "kernel"]
    assert [float(row["seconds"]) for row in kernels] == [k["seconds"] for k in found["kernels"]]
    assert [int(row["number"]) for row in kernels] == list(range(len(kernels)))


def test_text_has_the_lines_of_benchmark_model(device: tflgpu.Device, tmp_path: Path) -> None:
    """Which scripts look for; its options are also understood as it spells them."""
    options = ("--num_runs=20", "--min_secs=0", "--warmup_runs=2", "--warmup_min_secs=0", "--profile")
    text = succeed("benchmark", MODEL, *options, "--cache-dir", tmp_path)
    number = r"[\d.e+]+"
    assert re.search(
        rf"^Inference timings in us: Init: \d+, First inference: \d+, Warmup \(avg\): {number}, "
        rf"Inference \(avg\): {number}$",
        text,
        re.MULTILINE,
    )
    assert re.search(
        rf"^Memory footprint delta from the start of the tool \(MB\): init={number} overall={number}$", text, re.M
    )
    assert "cold" in text and "warm " not in text, "with a cache that is named it starts once"
    assert "top by computation time" in text and "summary by node type" in text
    assert re.search(r"# +operators +kernel +us +share +GB/s +GFLOP/s", text)


def test_tuning_is_an_option(device: tflgpu.Device, tmp_path: Path) -> None:
    arguments = ("benchmark", MODEL, *SHORT, "--tuning")
    assert "tune" in as_json(*arguments, "fast", "--cache-dir", tmp_path / "fast")["init_seconds"]["cold"]
    assert "tune" not in as_json(*arguments, "none", "--cache-dir", tmp_path / "none")["init_seconds"]["cold"]


def test_litert_is_asked_for_by_name(device: tflgpu.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_litert(monkeypatch)
    assert 'pip install "ai-edge-litert' in fail("benchmark", MODEL, "--litert")
    assert 'pip install "ai-edge-litert' in fail("diff", MODEL)
    assert "exclude each other" in fail("benchmark", MODEL, "--csv", "--json")
