"""Operators that LiteRT has not run before run first in a guarded process: a crash or a hang ends that one."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.conftest import missing
from tests.support.models import Builder
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.fallback import guarded_process, litert_interpreter
from tflgpu.fallback.guarded_process import CrashedError, GuardedProcess, RefusedError
from tflgpu.fallback.guarded_requests import ask_guarded
from tflgpu.fallback.submodel import Submodel

pytest.importorskip("ai_edge_litert")

pytestmark = pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")


@pytest.fixture(scope="module")
def process() -> Iterator[GuardedProcess]:
    with GuardedProcess(60.0) as process:
        yield process


@pytest.fixture
def _device() -> None:
    if not tflgpu.devices():
        missing("an OpenCL device")


def crashing(place: int) -> Submodel:
    """Four operators, of which one calls a subgraph that calls itself: no stack is large enough."""
    builder, endless = Builder(), Builder()
    again = {"then_subgraph_index": 1, "else_subgraph_index": 1}
    given = endless.input((4,))
    result = endless.add("IF", [endless.constant(np.array(True)), given], (4,), **again)
    assert builder.subgraph(endless, [result]) == 1
    truth, x = builder.constant(np.array(True)), builder.input((4,))
    codes = ["IF" if number == place else "ABS" for number in range(4)]
    for code in codes:
        last = x
        x = builder.add(code, [truth, last] if code == "IF" else [last], (4,), **(again if code == "IF" else {}))
    return Submodel(builder.finish([x]), tuple((10 + i, code) for i, code in enumerate(codes)))


def counting_down() -> bytes:
    """Subtracts 1 until nothing is left: for ever, from a number that is not whole."""
    builder, condition, body = Builder(), Builder(), Builder()
    given = condition.input((1,))
    again = condition.add("NOT_EQUAL", [given, condition.constant(np.zeros(1, np.float32))], (1,), "bool")
    given = body.input((1,))
    less = body.add("ADD", [given, body.constant(np.full(1, -1, np.float32))], (1,))
    x = builder.input((1,), name="x")
    numbers = {"cond_subgraph_index": builder.subgraph(condition, [again])}
    numbers["body_subgraph_index"] = builder.subgraph(body, [less])
    left = builder.add("WHILE", [x], (1,), name="left", **numbers)
    return builder.finish([builder.add("COS", [left], (1,), name="y")])


@pytest.mark.parametrize("place", [0, 2, 3])
def test_a_crash_names_the_operator(process: GuardedProcess, place: int) -> None:
    with pytest.raises(
        tflgpu.UnsupportedError, match=rf"operator 1{place} IF: preparing it on the CPU crashed \(SIGSEGV"
    ):
        ask_guarded(process, "prepare", crashing(place))


def test_a_process_answers_again_and_again(process: GuardedProcess) -> None:
    """Shapes, a refusal, and what it tells after another one crashed."""
    builder = Builder()
    x = builder.input((4,))
    y = builder.add("ABS", [x], (4,))
    sound = builder.finish([y])
    with pytest.raises(RefusedError, match="expected type FLOAT32"):
        process.ask("run", sound, [np.zeros(4, np.int8)])
    with pytest.raises(tflgpu.UnsupportedError):
        ask_guarded(process, "prepare", crashing(1))
    assert process.ask("shapes", sound) == [[4]]
    assert process.ask("run", sound, [np.zeros(4, np.float32)]) is None


def test_what_a_process_that_starts_late_was_to_do_is_not_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_process, "START_SECONDS", 0.0)
    with GuardedProcess(60.0) as late, pytest.raises(CrashedError, match="did not end within 0 s"):
        late.ask("prepare", crashing(1).model)


def test_memory_is_limited(process: GuardedProcess) -> None:
    """6 GB of numbers: LiteRT takes memory without a look at what it was given."""
    builder = Builder()
    size = builder.input((1,), "int32")
    y = builder.add("FILL", [size, builder.constant(np.float32(1))], (1,))
    submodel = Submodel(builder.finish([y]), ((0, "FILL"),))
    with pytest.raises((tflgpu.UnsupportedError, RefusedError)):
        ask_guarded(process, "run", submodel, [np.array([1_500_000_000], np.int32)])


def test_what_is_written_past_a_tensor_counts_as_a_crash(process: GuardedProcess) -> None:
    """Here it would do its harm later, and elsewhere. RESHAPE copies 8000 bytes into a tensor of 4000."""
    builder = Builder()
    x = builder.input((1000,), "float64")
    y = builder.add("RESHAPE", [x, builder.ints([1000])], (1000,))
    with pytest.raises(tflgpu.UnsupportedError, match="operator 7 RESHAPE: running it on the CPU crashed"):
        ask_guarded(process, "run", Submodel(builder.finish([y]), ((7, "RESHAPE"),)), [np.zeros(1000)])


@pytest.mark.device
@pytest.mark.usefixtures("_device")
def test_a_loop_without_end_is_unsupported() -> None:
    """The trial has the caller's own numbers: zeros would end it, or not, where these do the contrary."""
    options = tflgpu.Options(cache="off", cpu_part=tflgpu.CpuPart(operators=["WHILE"], trial_timeout=1.0))
    model = tflgpu.compile(counting_down(), options)
    with pytest.raises(tflgpu.UnsupportedError, match="operator 0 WHILE: running it on the CPU did not end within 1 s"):
        model.run(np.full(1, 2.5, np.float32))
    assert model.run(np.full(1, 3.0, np.float32)) == {"y": 1.0}


@pytest.mark.device
@pytest.mark.usefixtures("_device")
def test_what_has_run_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = tflgpu.Options(cache_files=tflgpu.CacheFiles(path=tmp_path), cpu_part=tflgpu.CpuPart(operators=["WHILE"]))
    x = np.full(1, 2.0, np.float32)
    assert tflgpu.compile(counting_down(), options).run(x) == {"y": 1.0}
    monkeypatch.setattr("tflgpu.fallback.cpu_engine._known", set())  # as in a new process
    monkeypatch.setattr(guarded_process, "_start", lambda: pytest.fail("another process was started"))
    assert tflgpu.compile(counting_down(), options).run(x) == {"y": 1.0}


@pytest.mark.device
@pytest.mark.usefixtures("_device")
@pytest.mark.parametrize(("executable", "seconds"), [("", 60.0), (sys.executable, None)])
def test_without_a_process(executable: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program without a Python interpreter of its own, and if the caller wants none."""
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(guarded_process, "ServerProcess", lambda *_: pytest.fail("a process was started"))
    options = tflgpu.Options(cache="off", cpu_part=tflgpu.CpuPart(operators=["WHILE"], trial_timeout=seconds))
    assert tflgpu.compile(counting_down(), options).run(np.full(1, 2.0, np.float32)) == {"y": 1.0}


def test_the_process_imports_nothing_of_tflgpu() -> None:
    """It would take seconds to start, and open every OpenCL driver."""
    tree = ast.parse(Path(litert_interpreter.__file__).read_text())
    imported = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    imported += [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
    assert not [name for name in imported if name and name.startswith("tflgpu")]


def test_a_comparison_survives_a_crash() -> None:
    with pytest.raises(ValueError, match=r"LiteRT cannot run this model: crashed \(SIGSEGV"):
        LiteRT(crashing(1).model, None)


@pytest.mark.full("it fills 4 GiB of memory")
def test_a_partition_that_memory_does_not_hold_is_unsupported(process: GuardedProcess) -> None:
    """2 GiB twice, in LiteRT and in the array of the result, are more than the process may take."""
    builder = Builder()
    x = builder.input((4,), "int8")
    y = builder.add("PAD", [x, builder.ints([[0, 2**31 - 12]])], (2**31 - 8,), "int8")
    submodel = Submodel(builder.finish([y]), ((7, "PAD"),))
    with pytest.raises(
        tflgpu.UnsupportedError, match="operator 7 PAD: running it on the CPU takes more than 4294967296"
    ):
        ask_guarded(process, "run", submodel, [np.zeros(4, np.int8)])
