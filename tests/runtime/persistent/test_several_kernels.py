"""The persistent executor where functions are many: a few kernels one after another, in place of one."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.runtime.persistent.chains import X, chain, expected
from tests.support.models import Builder
from tests.support.planning import plan_of
from tests.support.program_parts import divide_programs
from tests.support.targets import H200
from tflgpu.codegen.functions import variants
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.codegen.whole_kernels import render_persistent
from tflgpu.plan import program_parts
from tflgpu.runtime.executors.persistent_executor import SPIN_LIMIT, PersistentExecutor


def test_many_functions_are_several_kernels(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch is in one of them, in order; they end between intervals, and have about as many functions each."""
    data = (shared / "models" / "face_landmark.tflite").read_bytes()
    plan = plan_of(data, H200)
    source = render(plan)
    executable = link(plan, source.names)
    number = len({variant.function.name for variant in variants(source.functions).values()})
    divide_programs(monkeypatch, number, 9)
    assert len(render_persistent(source, executable, ptx=True)[1].functions) == 1
    divide_programs(monkeypatch, number - 1, 9)
    text, persistent = render_persistent(source, executable, ptx=True)
    assert replace(executable, persistent=persistent).parts == len(persistent.functions) == 3
    loops = [tuple(map(int, found)) for found in re.findall(r"int place = (\d+); place < (\d+);", text)]
    assert (loops[0][0], loops[-1][1]) == (0, len(plan.kernels))
    assert all(end == begin for (_, end), (begin, _) in pairwise(loops))
    order = [executable.launches[each] for each in persistent.order]
    assert all(order[begin - 1].interval < order[begin].interval for begin, _ in loops[1:])
    sizes = [len({launch.function for launch in order[begin:end]}) for begin, end in loops]
    assert max(sizes) <= 9 and max(sizes) - min(sizes) <= 4
    for part, kernel in enumerate(text.split("__kernel")[1:]):
        assert f"void {persistent.functions[part]}(" in kernel
        assert ("times[0] =" in kernel) == (part == 0)
    conditions = re.findall(r"#if (.*PART.*)", text)
    assert conditions[-3:] == [f"!defined PART || PART == {part}" for part in range(3)]
    assert len(conditions) == number + 3, "a part has the functions that it calls"


@pytest.fixture
def few_functions_each(monkeypatch: pytest.MonkeyPatch) -> None:
    divide_programs(monkeypatch, 1, 2)


@pytest.mark.usefixtures("few_functions_each")
def test_several_kernels_give_the_same_results(device_name: str) -> None:
    options = tflgpu.Options(
        device=device_name,
        execution=tflgpu.Execution(kernels="gpu", executor="persistent"),
        precision="fp32",
        cache="off",
    )
    model = tflgpu.compile(chain(), options)
    assert model.source.count("__kernel") > 1
    for x in (X, -X, X):
        (got,) = model.run([x]).values()
        np.testing.assert_allclose(got, expected(x), rtol=1e-5)


@pytest.mark.usefixtures("few_functions_each")
def test_a_barrier_that_gives_up_in_one_of_several_kernels_is_reported(executor: PersistentExecutor) -> None:
    assert len(executor._launches) > 1
    executor.set_spin_limit(0)
    with pytest.raises(tflgpu.DeviceError, match="do not run at the same time"):
        executor.run([X])
    executor.set_spin_limit(SPIN_LIMIT)
    (got,) = executor.run([X])
    np.testing.assert_allclose(got, expected(X), rtol=1e-5)


def test_layers_that_repeat_run_the_same_kernels(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And give the results of one kernel."""
    monkeypatch.setattr(program_parts, "WORTH_A_LAUNCH", (1, 1))
    options = tflgpu.Options(
        device=device_name,
        execution=tflgpu.Execution(kernels="gpu", executor="persistent"),
        precision="fp32",
        cache="off",
    )
    whole = tflgpu.compile(repeated_layers(), options)
    divide_programs(monkeypatch, 1, 2)
    several = tflgpu.compile(repeated_layers(), options)
    assert "int begin, int end" in several.source and "int begin, int end" not in whole.source
    assert several.source.count("__kernel") < several.report.kernels
    for x in (X, -X, X):
        np.testing.assert_array_equal(several.run([x])["y"], whole.run([x])["y"])


def repeated_layers() -> bytes:
    """Three times softmax(x) * mean(x), each of the result before."""
    builder = Builder()
    x = builder.input((1, 4, 4, 8))
    axes = builder.ints([1, 2])
    for name in (None, None, "y"):
        curve = builder.add("SOFTMAX", [x], (1, 4, 4, 8), beta=1.0)
        mean = builder.add("MEAN", [x, axes], (1, 1, 1, 8), keep_dims=True)
        x = builder.add("MUL", [curve, mean], (1, 4, 4, 8), name=name)
    return builder.finish([x])
