"""Barrier intervals against their definition, kernel by kernel and byte by byte."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tflgpu
from tests.support.models import Builder
from tests.support.planning import plan_of
from tests.support.targets import H200
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.codegen.whole_kernels import in_intervals
from tflgpu.plan import planning
from tflgpu.plan.barrier_intervals import Use, barrier_intervals, intervals
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session

USES = st.builds(
    lambda memory, begin, size, written: Use(memory, begin, begin + size, written),
    st.integers(-1, 1),
    st.integers(0, 12),
    st.integers(0, 6),
    st.booleans(),
)


def conflict(one: list[Use], two: list[Use]) -> bool:
    return any(
        a.memory == b.memory and (a.written or b.written) and {*range(a.begin, a.end)} & {*range(b.begin, b.end)}
        for a in one
        for b in two
    )


@given(st.lists(st.lists(USES, max_size=3), max_size=12))
def test_an_interval_is_the_least_above_those_of_conflicting_kernels(kernels: list[list[Use]]) -> None:
    found = intervals(kernels)
    for number, uses in enumerate(kernels):
        before = [found[i] for i in range(number) if conflict(kernels[i], uses)]
        assert found[number] == 1 + max(before, default=-1)


def branches(number: int, length: int) -> bytes:
    """A model whose branches are chains of softmaxes, which no kernel joins."""
    builder = Builder()
    x, ends = builder.input((1, 4, 4, 8)), []
    for _ in range(number):
        y = x
        for _ in range(length):
            y = builder.add("SOFTMAX", [y], beta=1.0)
        ends.append(y)
    return builder.finish(ends)


def test_memory_that_tensors_share_delays_no_branch() -> None:
    found = Counter(barrier_intervals(plan_of(branches(5, 4), H200)))
    assert found == {0: 1, 1: 5, 2: 5, 3: 5, 4: 5}  # the first one copies the input


@pytest.mark.quick(when=lambda model: model == "branches")
@pytest.mark.parametrize("model", ["branches", "face_landmark"])
def test_kernels_of_an_interval_run_in_any_order(model: str, device_name: str, request: pytest.FixtureRequest) -> None:
    """Their launches one after another, in other orders than that of the plan, give the same bits."""
    options = tflgpu.Options(
        device=device_name, precision="fp32", execution=tflgpu.Execution(kernels="gpu", executor="persistent")
    )
    if model == "branches":
        data = branches(5, 4)
    else:
        data = (request.getfixturevalue("shared") / "models" / f"{model}.tflite").read_bytes()
    plan = plan_of(data, choose(device_name).target(options))
    source, session, draw = render(plan), open_session(choose(device_name)), Random(0)
    executable, (program, _) = link(plan, source.names), build(source.text, session)
    launches = [executable.launches[number] for number in in_intervals(executable)]
    intervals = [[*own] for _, own in groupby(launches, key=lambda launch: launch.interval)]
    assert max(map(len, intervals)) > 1
    random = np.random.default_rng(0)
    inputs = [random.normal(size=binding.shape).astype(binding.dtype) for binding in executable.inputs]
    expected = LaunchExecutor(executable, program, session).run(inputs)
    for order in (lambda own: own[::-1], lambda own: draw.sample(own, len(own))):
        shuffled = replace(executable, launches=tuple(launch for own in intervals for launch in order(own)))
        for got, wanted in zip(LaunchExecutor(shuffled, program, session).run(inputs), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_an_order_that_takes_many_launches_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other order has more intervals, and runs of equal functions."""
    by_levels = plan_of(branches(5, 4), H200)
    monkeypatch.setattr(planning, "find_runs", lambda own: own if max(map(len, own)) > 1 else own[:1])
    costly = replace(H200, cost_model=replace(H200.cost_model, launch_latency=1e6))
    assert max(barrier_intervals(plan_of(branches(5, 4), costly))) > max(barrier_intervals(by_levels))
