"""The persistent executor: barrier intervals, the one kernel, and what happens when its barrier gives up."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

import tflgpu
from tests.runtime.persistent.chains import X, chain, expected
from tests.support.models import Builder
from tests.support.planning import kinds, plan_of
from tests.support.targets import H200
from tflgpu.artifact.executable import RANGE_ALIGNMENT
from tflgpu.codegen.environment import AWAIT_INPUTS
from tflgpu.codegen.functions import variants
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.codegen.whole_kernels import assemble, render_persistent
from tflgpu.compiler import compile_model
from tflgpu.plan import Plan, PlannedKernel
from tflgpu.plan.barrier_intervals import barrier_intervals
from tflgpu.runtime.device_memory import DeviceMemory
from tflgpu.runtime.executors.persistent_executor import SPIN_LIMIT, PersistentExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session


def test_one_kernel_runs_all(executor: PersistentExecutor) -> None:
    for x in (X, -X, X):
        (got,) = executor.run([x])
        np.testing.assert_allclose(got, expected(x), rtol=1e-5)


def test_barrier_that_gives_up_is_reported_and_recovers(executor: PersistentExecutor) -> None:
    executor.set_spin_limit(0)
    for _ in range(2):
        with pytest.raises(tflgpu.DeviceError, match="do not run at the same time"):
            executor.run([X])
    executor.set_spin_limit(SPIN_LIMIT)
    (got,) = executor.run([X])
    np.testing.assert_allclose(got, expected(X), rtol=1e-5)


def test_barrier_that_gives_up_is_seen_without_reading_outputs(executor: PersistentExecutor) -> None:
    target = DeviceMemory(cl.Buffer(executor.session.context, cl.mem_flags.READ_WRITE, X.nbytes), 0, X.shape, X.dtype)
    executor.set_spin_limit(0)
    with pytest.raises(tflgpu.DeviceError, match="do not run at the same time"):
        executor.run([X], {0: target})
    executor.set_spin_limit(SPIN_LIMIT)
    assert executor.run([X], {0: target}) == []
    np.testing.assert_allclose(target.read(executor.session.queue), expected(X), rtol=1e-5)


def test_profile_needs_a_clock(executor: PersistentExecutor) -> None:
    with pytest.raises(tflgpu.DeviceError, match="cannot read a clock"):
        executor.profile([X], 1)


def test_profile_is_read_from_the_clock_after_each_kernel(device_name: str) -> None:
    """The clock counts microseconds from its first reading."""
    builder = Builder()
    x, axes = builder.input((1, 4, 4, 8)), builder.ints([1, 2])
    curve, twice, mean = (builder.tensor(shape) for shape in ((1, 4, 4, 8), (1, 4, 4, 8), (1, 1, 1, 8)))
    builder.op("SOFTMAX", [x], [curve], {"beta": 1.0})
    builder.op("SOFTMAX", [curve], [twice], {"beta": 1.0})
    builder.op("MEAN", [x, axes], [mean], {"keep_dims": True})
    options = tflgpu.Options(
        device=device_name, execution=tflgpu.Execution(kernels="gpu", executor="persistent"), precision="fp32"
    )
    device = choose(device_name)
    plan = plan_of(builder.finish([twice, mean]), device.target(options))
    assert kinds(plan) == ["map", "softmax", "reduce", "softmax"]
    source = render(plan)
    executable = link(plan, source.names)
    text, persistent = render_persistent(source, executable, ptx=False)
    text = text.replace("const bool keeps_time", "ulong clock = 5000;\n  const bool keeps_time")
    text = text.replace("= grid_clock()", "= (clock += 1000)")
    persistent = replace(persistent, clock=True)
    session = open_session(device)
    timed = PersistentExecutor(replace(executable, persistent=persistent), build(text, session)[0], session)
    times = [(begin, begin + 1e-6, 1e-6, 1e-6) for begin in (0, 1e-6, 2e-6, 3e-6)]
    np.testing.assert_allclose(timed.profile([X], 3), times, atol=1e-12)


def test_option_chooses_the_executor(device_name: str) -> None:
    results = {}
    for choice in ("launch", "persistent"):
        options = tflgpu.Options(
            device=device_name, execution=tflgpu.Execution(executor=choice, kernels="gpu"), precision="fp32"
        )
        model = tflgpu.compile(chain(), options)
        assert model.source.count("__kernel") == (1 if choice == "persistent" else model.report.kernels)
        (results[choice],) = model.run(X).values()
    np.testing.assert_array_equal(results["launch"], results["persistent"])


def test_dependent_kernels_have_intervals_of_their_own() -> None:
    plan = plan_of(chain(), H200)
    assert kinds(plan) == ["map", "reduce", "softmax", "softmax"]
    assert barrier_intervals(plan) == (0, 1, 2, 3)


def test_independent_kernels_share_an_interval() -> None:
    builder = Builder()
    x, axes = builder.input((1, 4, 4, 8)), builder.ints([1, 2])
    curve = builder.add("SOFTMAX", [x], (1, 4, 4, 8), beta=1.0)
    mean = builder.add("MEAN", [x, axes], (1, 1, 1, 8), keep_dims=True)
    plan = plan_of(builder.finish([curve, mean]), H200)
    assert kinds(plan) == ["map", "softmax", "reduce"]
    assert barrier_intervals(plan) == (0, 1, 1)


def _memory(plan: Plan, planned: PlannedKernel, *, written: bool) -> set[tuple[int | None, int]]:
    """The bytes of the arena, or of tensors outside of it, that a kernel touches, as (tensor, byte)."""
    found = set[tuple[int | None, int]]()
    for argument in planned.arguments:
        if argument.tensor is None or (written and not argument.written):
            continue
        root = plan.roots[argument.tensor]
        begin, place = plan.offsets.get(root, 0), None if root in plan.offsets else root
        found |= {(place, byte) for byte in range(begin, begin + plan.storage[root].bytes, 64)}
    return found


def test_kernels_of_one_interval_touch_different_memory(shared: Path) -> None:
    """Also where the arena gives the same bytes to one tensor after another."""
    data = (shared / "models" / "face_landmark.tflite").read_bytes()
    plan = plan_of(data, H200)
    found = barrier_intervals(plan)
    assert 1 + max(found) < len(found), "this model has branches"
    for (a, one), (b, two) in combinations(zip(found, plan.kernels, strict=True), 2):
        if a == b:
            assert not _memory(plan, one, written=True) & _memory(plan, two, written=False)
            assert not _memory(plan, two, written=True) & _memory(plan, one, written=False)


def test_barriers_stand_between_intervals_only(shared: Path) -> None:
    data = (shared / "models" / "face_landmark.tflite").read_bytes()
    plan = plan_of(data, H200)
    source = render(plan)
    text, persistent = render_persistent(source, link(plan, source.names), ptx=True)
    assert sorted(persistent.order) == list(range(len(plan.kernels)))
    (condition,) = re.findall(r"if \((.*)\) end_interval", text)
    without = {int(place) for place in re.findall(r"place != (\d+)", condition)}
    found = [barrier_intervals(plan)[number] for number in persistent.order]
    ends = [i for i, (interval, following) in enumerate(pairwise(found)) if interval != following]
    assert without == set(range(len(found))) - set(ends)


def test_a_persistent_kernel_has_the_text_of_a_function_once(shared: Path) -> None:
    """So that the compiler can inline it without making copies."""
    data = (shared / "models" / "face_landmark.tflite").read_bytes()
    plan = plan_of(data, H200)
    source = render(plan)
    assert len(source.functions) < len(source.names), "this model has equal layers"
    text, _ = render_persistent(source, link(plan, source.names), ptx=True)
    for name in {variant.function.name for variant in variants(source.functions).values()}:
        assert text.count(f"{name}_tile(") == 2  # its definition, and one call


def test_functions_read_no_input_before_they_wait_for_it(shared: Path) -> None:
    """Ahead of the wait they only compute the places of what they will read, and load constants."""
    data = (shared / "models" / "face_landmark.tflite").read_bytes()
    plan = plan_of(data, H200)
    source = render(plan)
    functions, waiting = {f.name: f for f in source.functions}, 0
    for planned, name in zip(plan.kernels, source.names, strict=True):
        ahead, found, _ = functions[name].body.text.partition(AWAIT_INPUTS)
        if not found:
            continue
        waiting += 1
        inputs = "|".join(argument.name for argument in planned.arguments if argument.data is None)
        for statement in re.findall(rf"[^;{{}}]*\b(?:{inputs})\b[^;]*;", ahead):
            assert re.match(r"\s*__global const \w+ \*\w+ = [^][]*;", statement), statement
        assert not re.search(r"\bimage\w*\[", ahead)
    assert waiting > 10


def test_in_half_on_nvidia_no_kernel_divides_exactly() -> None:
    """That calls a function for rare numbers, and the linker lets the whole kernel save registers around it."""
    builder = Builder()
    x, (root, shares, result) = builder.input((1, 4, 4, 8)), [builder.tensor((1, 4, 4, 8)) for _ in range(3)]
    builder.op("RSQRT", [x], [root])
    builder.op("LOGISTIC", [root], [shares])
    builder.op("SOFTMAX", [shares], [result], {"beta": 1.0})
    data = builder.finish([result])
    (artifact,) = compile_model(
        data, tflgpu.Options(precision="fp16", execution=tflgpu.Execution(executor="persistent")), H200
    )
    (piece,) = artifact.pieces
    lines = [line for line in piece.source.splitlines() if not line.startswith("#define")]
    text = re.sub(r"/\*.*?\*/", "", "\n".join(lines), flags=re.DOTALL)
    assert "reciprocal_of" in text and "inverse_root_of" in text
    assert not re.findall(r"[^/]/ [a-z_(]\w*|/ [0-9.]+f|\bsqrt\(", text)


def test_kernels_of_a_persistent_program_do_not_promise_restrict() -> None:
    """Else a compiler may read activations through a cache that does not see what other compute units write."""
    plan = plan_of(chain(), H200)
    source = render(plan)
    for planned, name in zip(plan.kernels, source.names, strict=True):
        function = next(f for f in source.functions if f.name == name)
        for argument, pointer in zip(planned.arguments, function.pointers, strict=True):
            assert pointer.restrict == (argument.data is not None)


def test_every_other_kernel_begins_with_the_last_work_group() -> None:
    """Each tile is computed once, and the clock is that of the group with the first one, whatever the group."""
    plan = plan_of(chain(), H200)
    source = render(plan)
    text, _ = render_persistent(source, link(plan, source.names), ptx=True)
    kernel = text[text.index("__kernel") :]
    assert "const int first_tile = place & 1 ? groups - 1 - group : group;" in kernel
    assert kernel.count("for (int tile = first_tile; tile < tiles; tile += groups)") == len(plan.kernels)
    assert len(re.findall(r"const int tiles = \d+;", kernel)) == len(plan.kernels)
    assert kernel.count("tile = group") == 0
    assert "if (keeps_time && first_tile == 0) times[place + 1] = grid_clock();" in kernel


@pytest.mark.parametrize("fits", [True, False])
def test_one_buffer_has_all_memory_or_kernels_are_launched_one_by_one(fits: bool) -> None:
    plan = plan_of(chain(), H200)
    source = render(plan)
    executable = link(plan, source.names)
    ends = [begin + buffer.bytes for begin, buffer in zip(executable.ranges, executable.buffers, strict=False)]
    assert all(end <= begin for end, begin in zip(ends, executable.ranges[1:], strict=True))
    assert not any(begin % RANGE_ALIGNMENT for begin in executable.ranges)
    size = executable.ranges[-1] + 8 * (len(executable.launches) + 1)
    limits = replace(H200.limits, allocation_bytes=size if fits else size - 1)
    text, assembled = assemble(source, executable, replace(H200, limits=limits))
    assert (assembled.persistent is not None, "end_interval" in text) == (fits, fits)
