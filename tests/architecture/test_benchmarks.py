"""The benchmarks' machinery: a contender that fails costs its own rows only, and rows say what was measured."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import tflgpu
from benchmarks import models, runtimes, table, zoo
from benchmarks.contest import comparison
from benchmarks.contest.case import Case
from benchmarks.contest.ceilings import Ceilings
from benchmarks.contest.contender import FEWEST_RUNS, STREAM, Skipped, streamed, timed
from benchmarks.contest.turns import Result, measure, prepare
from benchmarks.contest.worker import Worker
from benchmarks.language.__main__ import NETWORKS
from benchmarks.language.contenders import CACHE, PREFILL, VOCABULARY
from benchmarks.ways import launches, precisions, tolerances, transfers
from benchmarks.ways.command_buffer import version_of
from tests.conftest import missing, usable
from tests.quick import RUNTIMES
from tflgpu.cli.commands.demo import examples_folder
from tflgpu.language.language_steps import language_steps
from tflgpu.model.reader import read_signatures

DIGITS = examples_folder() / "digits" / "digits.tflite"

CEILINGS = Ceilings(bytes_per_second=1e12, flops={"fp32": 1e12, "fp16": 4e12}, launch_seconds=1e-5)


def case(model: str, precision: str = "fp32") -> Case:
    return Case(model, 1, precision, 0, "nowhere")


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    each = [Worker("tests.support.contenders", case(model)) for model in ("runs", "skipped", "dead")]
    with closing(each[0]), closing(each[1]), closing(each[2]):
        yield each


def test_failures_cost_their_own_rows_only(workers: list[Worker]) -> None:
    runs, skipped, dead = workers
    failed = prepare(workers, jobs=3)
    assert failed == {skipped: "not for this machine", dead: "its process ended with exit code 3"}
    good, bad, deadly, *never = measure([runs, dead], failed, rounds=2)
    assert good.ms is not None and good.ms > 0 and good.reason is None
    assert len(good.seconds) >= FEWEST_RUNS
    assert bad.ms is None and bad.reason == "ZeroDivisionError: division by zero"
    assert deadly.ms is None and deadly.reason == "its process ended with exit code 4"
    assert [(n.name, n.metric, n.reason) for n in never] == [("odd", "launch", failed[dead])]


def test_a_contender_tells_its_error_while_its_process_lives(workers: list[Worker]) -> None:
    worker = workers[0]
    worker.prepare()
    assert worker.labels == [("good", "launch"), ("bad", "launch"), ("deadly", "host")]
    assert worker.ask(0, "error") == 0.5
    assert worker.ask(0, "work") is None
    with pytest.raises(Skipped, match="exit code 4"):
        worker.ask(2, "sample", 1)
    with pytest.raises(Skipped, match="ended"):
        worker.ask(0, "error")


@pytest.mark.device
@pytest.mark.full("several processes compile models")
def test_models_that_fail_are_rows(tmp_path: Path) -> None:
    if not tflgpu.devices():
        missing("an OpenCL device")
    (tmp_path / "empty.tflite").write_bytes(b"")
    paths = [str(DIGITS), str(tmp_path / "empty.tflite")]
    found = {row["model"]: row for row in models.rows(paths, 0, ["launch"], ["fp32"], jobs=2)}
    assert found["digits"]["max_error"] < 1e-5
    assert found["digits"]["run_ms"] > 0
    assert found["empty"]["error"].startswith("ModelError: ")


def test_a_turn_is_half_warm_up() -> None:
    calls: list[int] = []
    assert len(timed(lambda: calls.append(0))(10)) == 5
    assert len(calls) == 10


def test_a_stream_is_timed_until_its_runs_are_over() -> None:
    calls: list[str] = []
    (seconds,) = streamed(lambda: calls.append("start"), lambda: calls.append("finish"))(2)
    assert seconds > 0
    assert "".join(call[0] for call in calls) == "s" * FEWEST_RUNS + "f" + "s" * 2 * STREAM + "f"


def test_kernels_take_the_longer_of_moving_and_computing() -> None:
    moving, computing = (8_000_000, 1000), (1000, 8_000_000)
    assert CEILINGS.attainable([moving, computing], "fp32") == pytest.approx(8e-6 + 16e-6)
    assert CEILINGS.attainable([moving, computing], "fp16") == pytest.approx(8e-6 + 4e-6)


def results() -> list[Result]:
    work = [(1_000_000, 1), (1_000_000, 1)]
    return [
        Result("tflgpu", "device", [4e-5], error=1e-6, work=work),
        Result("tflgpu-launch-executor", "device", [1e-4], error=1e-6, work=work),
        Result("tflgpu", "launch", [5e-5], error=1e-6),
        Result("tflgpu-launch-executor", "launch", [1.5e-4], error=1e-6),
        Result("torch-cuda-graph", "launch", [1e-4]),
        Result("tflgpu", "host", [2e-4], error=1e-6),
        Result("litert-gpu", "host", reason="no Vulkan"),
    ]


def test_rows_put_each_peer_beside_tflgpu() -> None:
    rows = {(r["metric"], r["engine"], r["peer"]): r for r in comparison.rows(case("net"), results(), CEILINGS)}
    device = rows["device", "tflgpu", "tflgpu-launch-executor"]
    assert (device["tflgpu_ms"], device["peer_ms"], device["ratio"]) == (0.04, 0.1, 0.4)
    assert device["roofline"] == 0.05  # two microseconds of forty
    assert rows["launch", "tflgpu", "torch-cuda-graph"]["ratio"] == 0.5
    assert rows["launch", "tflgpu", "torch-cuda-graph"]["peer_max_error"] is None
    skipped = rows["host", "tflgpu", "litert-gpu"]
    assert (skipped["peer_ms"], skipped["ratio"], skipped["skipped"]) == (None, None, "no Vulkan")
    cost = rows["launch", "tflgpu-launch-executor", "launch-cost"]
    assert (cost["peer_ms"], cost["ratio"], cost["kernels"]) == (0.12, 1.25, 2)


def test_a_model_that_fails_still_has_rows() -> None:
    rows = list(comparison.rows(case("net"), [Result("tflgpu", "device", reason="out of memory")], CEILINGS))
    assert [r["metric"] for r in rows] == ["device", "launch", "host"]
    assert {r["failed"] for r in rows} == {"out of memory"}


def test_wrong_answers_are_faults() -> None:
    assert comparison.fault(Result("tflgpu", "host", [1.0], error=1e-3), "fp16") is None
    assert "1.0e-03" in str(comparison.fault(Result("tflgpu-launch-executor", "host", [1.0], error=1e-3), "fp32"))
    assert "nan" in str(comparison.fault(Result("tflgpu", "host", [1.0], error=float("nan")), "fp32"))
    assert comparison.fault(Result("litert-gpu", "host", [1.0], error=0.5), "fp32") is None
    assert comparison.fault(Result("tflgpu", "host", reason="lost"), "fp32") == "lost"


def test_the_table_has_a_line_for_each_case() -> None:
    rows = [dict(r) for p in ("fp32", "fp16") for r in comparison.rows(case("net", p), results(), CEILINGS)]
    head, _, *lines = table.lines(rows)
    assert "CUDA graph" in head
    assert lines[0] == "| net | 1 | fp32 | 0.040 | 0.050 | 0.200 | 0.50 |  | 5% | 1e-06 |"
    assert [line.split("|")[3].strip() for line in lines] == ["fp32", "fp16"]


@pytest.mark.parametrize("model", [zoo.efficientnet_b0(size=128), zoo.fir_chain(layers=2)], ids=["images", "sound"])
def test_outputs_of_the_zoo_depend_on_their_inputs(model: bytes) -> None:
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    found = []
    for seed in range(2):
        x = np.random.default_rng(seed).uniform(-1, 1, source["shape"]).astype(np.float32)
        interpreter.set_tensor(source["index"], x)
        interpreter.invoke()
        found.append(interpreter.get_tensor(target["index"]))
    assert np.abs(found[0] - found[1]).max() > 0.05 * np.abs(found[0]).max()


@pytest.mark.device
@pytest.mark.full("it compiles a model in three precisions")
def test_precisions_are_compared_with_the_exact_one() -> None:
    devices = tflgpu.devices()
    if not devices:
        missing("an OpenCL device")
    found = precisions.row(DIGITS, [], devices[0], "auto", seconds=0)
    assert found["errors"].keys() == found["ways"].keys() >= {"fp32", "fp16"}
    assert found["errors"]["fp32"] == 0 < found["errors"]["fp16"] < 2e-2
    assert ("fp16_fast" in found["ways"]) == devices[0].limits.half_arithmetic


@pytest.mark.device
@pytest.mark.full("it compiles a model in three precisions")
def test_a_tolerance_holds_beside_fp16() -> None:
    devices = tflgpu.devices()
    if not devices:
        missing("an OpenCL device")
    found = tolerances.row(DIGITS, [], 1e-6, devices[0], "auto", seconds=0)
    assert found["errors"]["mixed"] < 1e-6 < found["errors"]["fp16"]
    assert found["ways"].keys() == {"fp16", "mixed", "fp32"}


@pytest.mark.device
@pytest.mark.full("it compiles a model on two devices")
def test_devices_are_compared_with_the_first() -> None:
    names = [usable(name) for name in RUNTIMES]
    first, second = runtimes.rows(str(DIGITS), names, "fp32", rounds=1, seconds=0)
    assert (first["device"], first["ratio"], first["max_error"]) == (names[0], 1, 0)
    assert second["device"] == names[1]
    assert isinstance(second["max_error"], float) and second["max_error"] < 1e-5


@pytest.mark.device
@pytest.mark.parametrize("of", [launches, transfers], ids=["launches", "transfers"])
def test_all_ways_give_the_same_bits(of: ModuleType) -> None:
    """There is a row only if they do."""
    devices = tflgpu.devices()
    if not devices:
        missing("an OpenCL device")
    ways = of.row(str(DIGITS), devices[0], "fp32", seconds=0)["ways"]
    assert {times["rounds"] for times in ways.values()} == {1}
    if of is launches:
        assert ("command buffer" in ways) == (version_of(devices[0].handle) is not None)


@pytest.mark.full(why="it decompresses a file of 85 MB")
def test_kept_graphs_are_language_models() -> None:
    names = sorted(path.name for path in NETWORKS.iterdir())
    assert names == [f"smollm_{kind}.tflite.xz" for kind in ("fp16", "int4", "int8")]
    data = lzma.decompress((NETWORKS / "smollm_int4.tflite.xz").read_bytes())
    steps = language_steps(read_signatures(data[data.index(b"\n") + 1 :]))
    assert [step.size for step in steps.prefills] == [PREFILL]
    assert (steps.cache_size, steps.vocabulary) == (CACHE, VOCABULARY)
    assert len(steps.decode.caches) == 2 * 30
