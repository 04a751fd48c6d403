"""A work-group that stays behind a run for the next one: the same answers, whenever it leaves."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import usable
from tests.quick import RUNTIMES
from tests.runtime.claiming.executors import SMALL, Executors, ran
from tflgpu.runtime.executors.resident import OVER, PACE, SAVED, Pace, ResidentKernel, is_over


@pytest.fixture
def lingering() -> Executors:
    """On the runtime whose threads sleep: a work-group that leaves when it is told to, and not before."""
    pace = Pace(spin_seconds=60, resident_polls=(1 << 32) - 1, burst_seconds=np.inf)  # the machine may be busy
    executors = Executors(usable(RUNTIMES[1]), 1, cores=2, shape=SMALL, pace=pace)
    if not isinstance(executors.claiming._kernel, ResidentKernel):
        pytest.skip("other processors than x86 keep no order between host and device")
    return executors


def small(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SMALL).astype(np.float32)


def test_a_group_stays_for_the_next_run(lingering: Executors) -> None:
    kernel = lingering.claiming._kernel
    assert isinstance(kernel, ResidentKernel)
    lingering.check(small(0))
    (launched,) = kernel._launched
    for seed in range(1, 20):
        lingering.check(small(seed))
    assert kernel._launched == [launched] and not is_over(launched)
    kernel.leave()
    lingering.check(small(20))
    assert is_over(launched)


def test_a_group_stays_only_where_runs_follow_each_other(lingering: Executors) -> None:
    kernel = lingering.claiming._kernel
    assert isinstance(kernel, ResidentKernel)
    for seconds, stays in (0.0, False), (60.0, True):
        kernel.pace = replace(kernel.pace, burst_seconds=seconds)
        for seed in range(2):
            lingering.check(small(seed))
        assert bool(kernel._launched) == stays


def test_a_group_leaves_before_others_use_its_counters(lingering: Executors) -> None:
    claiming = lingering.claiming
    for seed in range(3):
        lingering.check(small(seed))
        (expected,) = lingering.launching.run([small(seed + 9)])
        np.testing.assert_array_equal(claiming.collect(claiming.enqueue([small(seed + 9)], {}))[0], expected)


def test_a_run_that_nobody_waited_for_spoils_no_other(lingering: Executors) -> None:
    for seed in range(20):
        lingering.claiming.write([small(seed)])
        lingering.claiming._kernel.start()
        lingering.check(small(seed + 1))


def test_a_group_may_leave_in_the_moment_in_which_it_is_asked(lingering: Executors) -> None:
    for seed in range(20):
        lingering.claiming._kernel.leave()
        lingering.check(small(seed))


def test_a_group_does_not_stay_where_it_has_no_core(lingering: Executors) -> None:
    """That is told by a run for which the thread had looked in vain."""
    kernel = lingering.claiming._kernel
    assert isinstance(kernel, ResidentKernel)
    kernel.pace = replace(kernel.pace, spin_seconds=0, longest_backoff=3)
    kernel._least = 0
    for seed in range(20):
        lingering.check(small(seed))
    kernel.leave()
    kernel._rest, launched = 3, list(kernel._launched)
    for seed in range(3):
        lingering.check(small(seed))
    assert kernel._launched == launched and not kernel._rest
    lingering.check(small(3))
    assert kernel._launched != launched


def test_each_late_run_makes_more_runs_rest(lingering: Executors) -> None:
    kernel, rests = lingering.claiming._kernel, []
    assert isinstance(kernel, ResidentKernel)
    for _ in range(9):
        kernel._back_off(1)
        rests.append(kernel._rest)
    assert rests[:2] == [PACE.first_backoff, 2 * PACE.first_backoff] and rests[-2:] == [PACE.longest_backoff] * 2
    kernel._rest = 0


def test_runs_rest_for_as_few_as_at_first_where_staying_has_saved_more_than_a_late_one_took(
    lingering: Executors,
) -> None:
    kernel = lingering.claiming._kernel
    assert isinstance(kernel, ResidentKernel)
    rests = []
    for runs in 2, 12, 9:
        for seed in range(runs):
            lingering.check(small(seed))
        kernel._back_off(10.5 * SAVED)
        rests.append(kernel._rest)
        kernel._rest = 0
    assert rests == [PACE.first_backoff, PACE.first_backoff, 2 * PACE.first_backoff]


def test_a_long_run_is_not_late(lingering: Executors) -> None:
    """It is measured by those before it."""
    kernel = lingering.claiming._kernel
    assert isinstance(kernel, ResidentKernel)
    kernel.pace = replace(kernel.pace, spin_seconds=0)
    kernel._least = 30  # seconds
    lingering.check(small(0))  # the next one would be late on a busy machine
    assert not kernel._rest and 0 < kernel._least < 30


def test_runs_of_a_group_that_stays_may_overflow(lingering: Executors) -> None:
    kernel = lingering.claiming._kernel
    kernel.leave()
    ran(lingering.claiming, -3)
    for seed in range(7):
        lingering.check(small(seed))
    assert kernel._words[OVER] == 4  # type: ignore[attr-defined]


def test_a_group_leaves_before_its_memory_goes(lingering: Executors) -> None:
    lingering.check(small(0))
    (launched,) = lingering.claiming._kernel._launched  # type: ignore[attr-defined]
    del lingering.claiming
    gc.collect()
    assert is_over(launched)


def test_a_fork_does_not_wait_for_a_group(lingering: Executors, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of the device are not there."""
    lingering.check(small(0))
    (launched,) = lingering.claiming._kernel._launched  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: 1)
        lingering.claiming._kernel.leave()
    assert not is_over(launched)
