"""Execution(executor="auto"): which executor a model gets, by the sizes of its kernels or by a race."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.support import targets
from tests.support.limited_devices import let_devices_be
from tests.support.models import Builder
from tests.support.planning import plan_of
from tflgpu.compiler import compile_model
from tflgpu.errors import DeviceError
from tflgpu.opening import opener
from tflgpu.options import CacheFiles, Execution, Options
from tflgpu.plan import planning
from tflgpu.report.profile import Stopwatch
from tflgpu.runtime import instance
from tflgpu.runtime.executors.executor import Executor
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.executors.persistent_executor import PersistentExecutor
from tflgpu.runtime.opencl import build, devices
from tflgpu.runtime.opencl.clock import ENOUGH_SECONDS, IN_A_ROW, ROUNDS, fastest

H200 = replace(targets.H200, executor="auto")


def network(size: int) -> bytes:
    """Two kernels over ``size`` x ``size`` pixels of 4 channels."""
    builder = Builder()
    shape = (1, size, size, 4)
    x = builder.input(shape, name="x")
    curve = builder.add("SOFTMAX", [x], shape, beta=1.0)
    return builder.finish([builder.add("SOFTMAX", [curve], shape, name="y", beta=1.0)])


@pytest.mark.parametrize(
    ("size", "expected"), [(16, ["persistent"]), (400, ["persistent", "launch"]), (1000, ["launch"])]
)
def test_sizes_of_kernels_decide_clear_cases(size: int, expected: list[str]) -> None:
    """1, 5 and 30 waves of tiles of 256 pixels on 132 compute units."""
    rivals = compile_model(network(size), Options(), H200, Stopwatch())
    assert [a.executor for a in rivals] == expected


@pytest.mark.parametrize("executor", ["launch", "persistent"])
def test_a_caller_who_chooses_gets_it(executor: str) -> None:
    target = replace(H200, executor=executor)
    for size in (16, 400, 1000):
        (artifact,) = compile_model(network(size), Options(), target, Stopwatch())
        assert artifact.executor == executor


def test_rivals_are_what_their_executors_alone_would_be() -> None:
    for artifact in compile_model(network(400), Options(), H200, Stopwatch()):
        target = replace(H200, executor=artifact.executor)
        assert compile_model(network(400), Options(), target, Stopwatch()) == (artifact,)


def test_waves_are_counted_on_the_devices_compute_units() -> None:
    for units, expected in ((1, "launch"), (20, None), (1000, "persistent")):
        plan = plan_of(network(160), replace(H200, compute_units=units))
        assert planning.clear_choice([plan]) == expected


def test_a_model_without_kernels_needs_no_choice() -> None:
    assert planning.clear_choice([]) == "persistent"


class Clock:
    """Seconds that pass only while a rival runs, as many as its next entry says."""

    def __init__(self, **runs: list[float]) -> None:
        self.seconds, self.runs, self.order = 0.0, runs, list[str]()

    def now(self) -> float:
        return self.seconds

    def run(self, name: str) -> None:
        self.order.append(name)
        self.seconds += self.runs[name].pop(0)


def test_the_least_median_wins_whatever_the_first_runs_took() -> None:
    """A first run and the first half of each turn fill caches: they do not count."""
    first, rest = IN_A_ROW // 2, IN_A_ROW - IN_A_ROW // 2
    clock = Clock(
        a=[9.0] + ([3e-3] * first + [1e-3] * (rest - 1) + [4e-3]) * ROUNDS,
        b=[1e-3] + ([1e-4] * first + [2e-3] * rest) * ROUNDS,
    )
    assert fastest(["a", "b"], clock.run, clock.now) == "a"
    assert clock.order == ["a", "b"] + (["a"] * IN_A_ROW + ["b"] * IN_A_ROW) * ROUNDS


def test_a_single_rival_does_not_run() -> None:
    clock = Clock()
    assert fastest(["a"], clock.run, clock.now) == "a"


def test_long_runs_have_one_round_of_one_run() -> None:
    clock = Clock(a=[ENOUGH_SECONDS] * 2, b=[2 * ENOUGH_SECONDS] * 2)
    assert fastest(["b", "a"], clock.run, clock.now) == "a"
    assert clock.order == ["b", "a"] * 2


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, device_name: str) -> str:
    """The name of a device on which only measuring can tell, which a CPU is not."""
    found = [replace(d, executor="auto") for d in devices.devices()]
    let_devices_be(monkeypatch, *found)
    monkeypatch.setattr(planning, "FEW", 0.0)
    monkeypatch.setattr(planning, "MANY", np.inf)
    return device_name


def winning(kind: type[Executor]) -> Callable[..., object]:
    """A function in place of the race: it returns the instance with an executor of this kind."""

    def chosen(rivals: list[instance.Instance], _: object) -> instance.Instance:
        assert len(rivals) == 2
        (winner,) = (r for r in rivals if isinstance(r._engines[0], kind))
        return winner

    return chosen


X = np.random.default_rng(0).normal(size=(1, 16, 16, 4)).astype(np.float32)


@pytest.mark.parametrize("kind", [LaunchExecutor, PersistentExecutor])
def test_the_winner_is_kept_and_a_warm_start_measures_nothing(
    kind: type[Executor], both: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(
        device=both, execution=Execution(kernels="gpu"), precision="fp32", cache_files=CacheFiles(path=tmp_path)
    )
    monkeypatch.setattr(opener, "fastest", winning(kind))
    cold = tflgpu.compile(network(16), options)
    monkeypatch.setattr(opener, "fastest", lambda *_: pytest.fail("a warm start measures"))
    warm = tflgpu.compile(network(16), options)
    assert cold.executor == warm.executor == ("launch" if kind is LaunchExecutor else "persistent")
    assert "plan" in cold.seconds and "plan" not in warm.seconds
    np.testing.assert_array_equal(cold.run(X)["y"], warm.run(X)["y"])


def test_rivals_are_compiled_at_the_same_time(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the driver compiles several programs at once: each waits for the other here."""
    together, original = threading.Barrier(2, timeout=60), build.build

    def waiting(*arguments: Any, **named: Any) -> Any:
        together.wait()
        return original(*arguments, **named)

    options = Options(device=both, execution=Execution(kernels="gpu"), precision="fp32", cache="off")
    expected = tflgpu.compile(network(16), options).run(X)["y"]
    monkeypatch.setattr(build, "makes_drafts", lambda _: True)
    monkeypatch.setattr(build, "build", waiting)
    np.testing.assert_array_equal(tflgpu.compile(network(16), options).run(X)["y"], expected)


def test_a_race_leaves_no_trace_in_the_answer(both: str) -> None:
    options = Options(device=both, execution=Execution(kernels="gpu"), precision="fp32", cache="off")
    got = tflgpu.compile(network(16), options)
    assert "executors" in got.seconds
    expected = tflgpu.compile(network(16), replace(options, execution=replace(options.execution, executor="launch")))
    np.testing.assert_array_equal(got.run(X)["y"], expected.run(X)["y"])


def test_an_executor_that_the_device_cannot_run_is_out(both: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: PersistentExecutor) -> None:
        raise DeviceError("the work-groups do not run at the same time")

    monkeypatch.setattr(PersistentExecutor, "warm_up", fail)
    options = Options(device=both, execution=Execution(kernels="gpu"), precision="fp32", cache="off")
    assert tflgpu.compile(network(16), options).executor == "launch"


def test_a_barrier_that_gives_up_shows_while_warming_up(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflgpu.runtime.executors.persistent_executor.SPIN_LIMIT", 0)
    options = Options(
        device=device_name, execution=Execution(kernels="gpu", executor="persistent"), precision="fp32", cache="off"
    )
    model = tflgpu.compile(network(16), options)
    (engine,) = model._runner.instances[(X.shape,)]._engines
    assert isinstance(engine, PersistentExecutor)
    with pytest.raises(DeviceError, match="do not run at the same time"):
        engine.warm_up()
