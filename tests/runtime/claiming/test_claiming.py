"""The claiming executor: the same answers as launches, whoever claims what, run after run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import tflgpu
from tests.quick import RUNTIMES
from tests.runtime.claiming.executors import SHAPE, SMALL, Executors, X, branches, ran
from tests.runtime.persistent.chains import chain
from tests.support.models import Builder
from tflgpu.artifact.executable import Launch
from tflgpu.codegen.whole_kernels import tables
from tflgpu.compiler import compile_model
from tflgpu.runtime.device_memory import DeviceMemory
from tflgpu.runtime.executors import claiming_executor
from tflgpu.runtime.executors.claiming_executor import Worthwhile
from tflgpu.runtime.executors.resident import LaunchedKernel
from tflgpu.runtime.opencl.description import has_host_memory
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session, session_on
from tflgpu.runtime.transfer import DirectTransfer, SharedTransfer


@pytest.fixture(scope="module", params=[1, 2, 5], ids="{} groups".format)
def executors(request: pytest.FixtureRequest, device_name: str) -> Executors:
    """Five groups are more than run at once here: the last ones begin when nothing is left to do."""
    return Executors(device_name, request.param)


def test_answers_are_those_of_launches(executors: Executors) -> None:
    for factor in range(1, 20):
        executors.check(X * np.float32(factor))


def test_a_group_that_does_not_wait_leaves_the_rest_to_the_others(executors: Executors) -> None:
    executors.claiming.set_spin_limit(0)
    for factor in range(1, 20):
        executors.check(X * np.float32(factor))


def test_counters_may_overflow(executors: Executors) -> None:
    """The counters begin as after 2^32 - 3 runs."""
    ran(executors.claiming, -3)
    for factor in range(1, 7):
        executors.check(X * np.float32(factor))


def test_a_profile_that_was_cut_short_leaves_no_trace(executors: Executors) -> None:
    claiming = executors.claiming
    whole = claiming.profile([X], 2)
    assert len(whole) == len(claiming.executable.launches) and all(time.end > time.begin for time in whole)
    queue, _, kernels = claiming._profiled
    for kernel in kernels[:3]:
        cl.enqueue_nd_range_kernel(queue, kernel, (claiming._kernel.groups,), (1,))
    queue.finish()
    executors.check()
    claiming.profile([-X], 1)
    (expected,) = executors.launching.run([-X])
    np.testing.assert_array_equal(claiming.results()[0], expected)
    executors.check()


def test_results_and_inputs_are_the_callers_alone(executors: Executors) -> None:
    """Though host and device share the memory of both."""
    x = X.copy()
    (first,) = executors.claiming.run([x])
    kept = first.copy()
    executors.check(2 * X)
    x[:] = 0
    first[:] = 0
    (again,) = executors.claiming.run([X])
    np.testing.assert_array_equal(again, kept)


def test_large_arrays_of_any_kind_give_the_same_answers(device_name: str) -> None:
    """Kernels read them where they are, if the device can, and nothing has to be copied."""
    executors = Executors(device_name, 2, worthwhile=Worthwhile(lent=X.nbytes))
    assert bool(executors.claiming._lendable) == has_host_memory(choose(device_name).handle)
    whole = np.zeros(X.nbytes + 64, np.uint8)
    frozen = X.copy()
    frozen.flags.writeable = False
    for x in frozen, np.repeat(X, 2, axis=3)[..., ::2], *(_shifted(whole, n) for n in (4, 1)):
        executors.check(x)
    (expected,) = executors.launching.run([-X])
    whole[:] = 255  # nothing reads it any more
    executors.claiming.launch()
    executors.claiming.write([-X])
    executors.claiming.step()
    np.testing.assert_array_equal(executors.claiming.results()[0], expected)
    flight = executors.claiming.enqueue([-X], {})
    np.testing.assert_array_equal(executors.claiming.collect(flight)[0], expected)


def _shifted(memory: np.ndarray, offset: int) -> np.ndarray:
    """X, so many bytes behind the beginning of ``memory``."""
    array = memory[offset : offset + X.nbytes].view(X.dtype).reshape(SHAPE)
    array[:] = X
    return array


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "copied"])
def test_outputs_may_stay_on_the_device(device_name: str, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming_executor, "has_shared_memory", lambda _: shared)
    executors = Executors(device_name, 2)
    kind = SharedTransfer if shared else DirectTransfer
    assert isinstance(executors.claiming._transfer, kind)
    (expected,) = executors.launching.run([X])
    session = executors.claiming.session
    source = cl.Buffer(session.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=X)
    target = DeviceMemory(cl.Buffer(session.context, cl.mem_flags.READ_WRITE, X.nbytes), 0, SHAPE, X.dtype)
    for given in DeviceMemory(source, 0, SHAPE, X.dtype), X:
        assert executors.claiming.run([given], {0: target}) == []
        np.testing.assert_array_equal(target.read(session.queue), expected)
        executors.check(-X)


def test_models_run_at_once_in_threads(device_name: str) -> None:
    options = tflgpu.Options(device=device_name, precision="fp32", execution=tflgpu.Execution(executor="claiming"))
    (expected,) = tflgpu.compile(branches(), options).run(X).values()

    def run(_: int) -> bool:
        model = tflgpu.compile(branches(), options)
        return all(np.array_equal(model.run(X)["y"], expected) for _ in range(30))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))


def test_cpus_claim_whatever_has_several_kernels(device_name: str) -> None:
    def executor(model: bytes, **options: Any) -> str:
        chosen = tflgpu.Options(precision="fp32", execution=tflgpu.Execution(**options))
        (artifact,) = compile_model(model, chosen, choose(device_name).target(chosen))
        return artifact.executor

    assert executor(chain()) == executor(chain(), executor="claiming") == "claiming"
    assert executor(chain(), executor="launch") == "launch"
    assert executor(chain(), kernels="gpu") == "launch"
    builder = Builder()
    x = builder.input(SHAPE)
    y = builder.add("ADD", [x, x], SHAPE)
    assert executor(builder.finish([y])) == "launch"


def test_little_work_is_for_the_calling_thread(device_name: str) -> None:
    """Where the device lets it compute; other inferences keep the order of the queue."""
    executors = Executors(device_name, 1, cores=2, shape=SMALL)
    claiming, session = executors.claiming, executors.claiming.session
    assert claiming._kernel.queue is (session.aside or session.queue)
    assert claiming._kernel.spins == (device_name == RUNTIMES[1])
    for factor in range(1, 10):
        x = np.random.default_rng(factor).normal(size=SMALL).astype(np.float32)
        executors.check(x)
        (expected,) = executors.launching.run([x])
        first, second = claiming.enqueue([x], {}), claiming.enqueue([-x], {})
        executors.check(2 * x)
        np.testing.assert_array_equal(claiming.collect(first)[0], expected)
        np.testing.assert_array_equal(claiming.collect(second)[0], executors.launching.run([-x])[0])


def test_a_callers_queue_is_the_only_one(device_name: str) -> None:
    session = open_session(choose(device_name))
    assert session_on(session.queue).aside is None


def test_both_are_timed_where_either_may_be_faster(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[list[int]] = []

    def last(kernels: list[LaunchedKernel], run: Callable[[LaunchedKernel], None]) -> Any:
        timed.append([kernel.groups for kernel in kernels])
        for kernel in kernels:
            run(kernel)
        return kernels[-1]

    monkeypatch.setattr(claiming_executor, "fastest", last)
    executors = Executors(device_name, 2, worthwhile=Worthwhile(several=1 << 40))
    helped = executors.claiming.session.aside is not None and device_name == RUNTIMES[0]
    assert timed == [[2] if helped else [1, 2]]
    for factor in range(5):
        executors.check(X * np.float32(factor))


@pytest.mark.parametrize("groups", [1, 3])
def test_brief_launches_are_one_chain(device_name: str, groups: int) -> None:
    executors = Executors(device_name, 1, cores=groups, shape=SMALL, worthwhile=Worthwhile(either=1))
    launches = executors.claiming.executable.launches
    assert tables(launches)["chains"] == [len(launches)] * len(launches)
    for factor in range(1, 10):
        executors.check(np.random.default_rng(factor).normal(size=SMALL).astype(np.float32))
    assert len(executors.claiming.profile([np.ones(SMALL, np.float32)], 1)) == len(launches)


def test_chains_end_where_several_tiles_begin() -> None:
    def launch(interval: int, tiles: int = 1, macs: int = 0) -> Launch:
        return Launch("", "f", tiles, 1, (), (), macs, 4, interval)

    order = [launch(0), launch(0), launch(1), launch(2, 3), launch(2), launch(3, macs=1 << 20), launch(4)]
    assert tables(order) == {
        "tiles": [1, 1, 1, 3, 1, 1, 1],
        "chains": [3, 3, 3, 4, 5, 6, 7],
        "intervals": [3, 3, 3, 5, 5, 6, 7],
        "left": [1, 1, 1, 4, 1, 1, 1],
    }


def test_a_device_that_cannot_is_refused(device_name: str) -> None:
    options = tflgpu.Options(device=device_name, execution=tflgpu.Execution(kernels="gpu", executor="claiming"))
    with pytest.raises(tflgpu.DeviceError, match="executor 'claiming' needs a CPU"):
        tflgpu.compile(chain(), options)
    with pytest.raises(tflgpu.DeviceError, match="executor 'claiming' needs a CPU"):
        tflgpu.compile(chain(), tflgpu.Options(device="Oclgrind", execution=tflgpu.Execution(executor="claiming")))
