"""Work-groups that stay to help the thread that calls: the same answers, whether they come or not."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from tests.conftest import usable
from tests.quick import RUNTIMES
from tests.runtime.claiming.executors import SHAPE, Executors, ran
from tflgpu.runtime.device_memory import DeviceMemory
from tflgpu.runtime.executors import claiming_executor
from tflgpu.runtime.executors.claiming_executor import Worthwhile
from tflgpu.runtime.executors.resident import ASKED, CAME, LEFT, OVER, LaunchedKernel, Pace, ResidentKernel, is_over

INPUTS = np.random.default_rng(0).normal(size=(4, *SHAPE)).astype(np.float32)


class Helped(Executors):
    """Knows the answers beforehand: while helpers stay, no other kernel may get a core."""

    def __init__(self, device_name: str, groups: int) -> None:
        pace = Pace(helper_polls=(1 << 32) - 1, burst_seconds=np.inf)
        super().__init__(device_name, groups, pace=pace, worthwhile=Worthwhile(several=1 << 40))
        kernel = self.claiming._kernel
        assert isinstance(kernel, ResidentKernel)
        self.kernel, self.answers = kernel, [self.launching.run([x])[0] for x in INPUTS]

    def check_runs(self, number: int) -> None:
        for run in range(number):
            x, expected = INPUTS[run % 4], self.answers[run % 4]
            np.testing.assert_array_equal(self.claiming.run([x])[0], expected)


@pytest.fixture(params=[2, 3], ids="{} groups".format)
def helped(request: pytest.FixtureRequest) -> Helped:
    """On the runtime that computes on the thread that calls: helpers leave when they are told to, and not before."""
    return Helped(RUNTIMES[0], request.param)


def test_helpers_stay_for_the_next_runs(helped: Helped) -> None:
    kernel = helped.kernel
    helped.claiming.set_spin_limit((1 << 32) - 1)  # the machine may be busy
    helped.check_runs(1)
    (launched,) = kernel._launched
    helped.check_runs(30)
    assert kernel._launched == [launched] and not is_over(launched)
    kernel.leave()
    assert is_over(launched) and kernel._words[CAME] == kernel._words[LEFT] == kernel.groups - 1
    helped.check_runs(3)
    assert kernel._launched != [launched]


def test_a_run_needs_no_helper(helped: Helped) -> None:
    """None is called for a run long behind the last one."""
    helped.kernel.pace = Pace(burst_seconds=0)
    helped.check_runs(20)
    assert not helped.kernel._launched


def test_a_result_on_the_host_waits_for_an_input_on_the_device(helped: Helped) -> None:
    """Such a run goes by kernel of the session's queue, of which helpers and their thread know nothing."""
    claiming, flags = helped.claiming, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    for run in range(40):
        x = INPUTS[run % 4]
        memory = DeviceMemory(cl.Buffer(claiming.session.context, flags, hostbuf=x), 0, x.shape, x.dtype)
        np.testing.assert_array_equal(claiming.run([memory])[0], helped.answers[run % 4])


def test_helpers_may_leave_at_any_time(helped: Helped) -> None:
    for _ in range(10):
        helped.check_runs(2)
        helped.kernel.leave()


def test_a_thread_that_does_not_wait_for_helpers_rests(helped: Helped) -> None:
    """It takes them for stopped as soon as it would have to wait. Then it runs alone for a while."""
    helped.kernel.pace = replace(helped.kernel.pace, longest_backoff=3)
    helped.claiming.set_spin_limit(0)
    helped.check_runs(60)
    kernel = helped.kernel
    kernel.leave()
    kernel._rest, launched = 3, list(kernel._launched)
    helped.check_runs(3)
    assert kernel._launched == launched
    helped.check_runs(1)
    assert kernel._launched != launched


def test_a_late_helper_spoils_no_run(helped: Helped) -> None:
    """In one that is over it finds nothing to claim."""
    kernel = helped.kernel
    helped.check_runs(2)
    for behind in 1, 2, 3:
        kernel.leave()
        kernel._words[OVER] -= behind
        kernel._launch_resident()
        while kernel._words[OVER] != kernel._words[ASKED]:
            pass
        helped.check_runs(3)


def test_helpers_leave_before_others_use_their_counters(helped: Helped) -> None:
    claiming = helped.claiming
    for x, expected in zip(INPUTS, helped.answers, strict=True):
        helped.check_runs(2)
        np.testing.assert_array_equal(claiming.collect(claiming.enqueue([x], {}))[0], expected)
        claiming.launch()
        claiming.write([x])
        claiming.step()
        np.testing.assert_array_equal(claiming.results()[0], expected)


def test_helped_runs_may_overflow(helped: Helped) -> None:
    kernel = helped.kernel
    kernel.leave()
    ran(helped.claiming, -3)
    helped.check_runs(7)
    assert kernel._words[OVER] == 4


def test_helpers_leave_before_their_memory_goes(helped: Helped) -> None:
    helped.check_runs(3)
    (launched,) = helped.kernel._launched
    del helped.claiming, helped.kernel
    gc.collect()
    assert is_over(launched)


def test_helpers_are_for_the_runtime_that_computes_on_the_calling_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming_executor, "fastest", lambda kernels, _: kernels[-1])
    executors = Executors(usable(RUNTIMES[1]), 2, worthwhile=Worthwhile(several=1 << 40))
    assert type(executors.claiming._kernel) is LaunchedKernel
    executors.check()
