"""Announcers and pools whose threads go on in any order: see :mod:`tests.schedules.threads`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.schedules.threads import Schedule
from tflgpu.runtime import pool, submission
from tflgpu.runtime.pool import Pool
from tflgpu.runtime.submission import Announcer


class Flight:
    """An inference, in the place of a submission."""

    def __init__(self, schedule: Schedule, announcer: Announcer, number: int) -> None:
        self._schedule, self._announcer, self._number = schedule, announcer, number
        self.over = False

    def settle(self) -> None:
        self._schedule.switch()
        self.over = True

    def wait(self) -> int:
        return self._number

    def add_done_callback(self, function: Callable[[Any], object]) -> None:
        self._announcer.add(self, partial(function, self))


@pytest.mark.parametrize("seed", range(60))
def test_each_function_is_called_once_and_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Schedule(seed, submission)
    monkeypatch.setattr(submission, "threading", schedule)
    announcing, called, busy = Announcer(), list[tuple[int, int]](), list[int]()

    def call(key: tuple[int, int], flight: Flight) -> None:
        assert flight.over and not busy, "functions are called one after another"
        busy.append(1)
        schedule.switch()
        called.append(key)
        busy.pop()

    def add(caller: int) -> None:
        for number in range(3):
            flight = Flight(schedule, announcing, number)
            announcing.add(flight, partial(call, (caller, number), flight))

    def callers() -> None:
        for caller in range(2):
            schedule.Thread(partial(add, caller)).start()

    schedule.run(callers)
    assert sorted(called) == [(caller, number) for caller in range(2) for number in range(3)]
    assert all([number for c, number in called if c == caller] == [0, 1, 2] for caller in range(2))
    assert announcing._thread is None


class Model:
    """Counts the inferences that are in flight, and computes the number of their order."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, self._announcer, self.flights = schedule, Announcer(), list[Flight]()

    def enqueue(self, inputs: Any, outputs: Any = None) -> Any:
        assert sum(not flight.over for flight in self.flights) < 2, "more are in flight than there are requests"
        self.flights.append(Flight(self._schedule, self._announcer, len(self.flights)))
        if len(self.flights) == 4:
            self.flights.pop()
            raise ValueError("wrong input")
        return self.flights[-1]


@pytest.mark.parametrize("seed", range(60))
def test_a_pool_keeps_the_order_and_its_requests(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Schedule(seed, pool)
    monkeypatch.setattr(submission, "threading", schedule)
    monkeypatch.setattr(pool, "threading", schedule)
    model = Model(schedule)
    inferences, refused = Pool(model, 2), list[int]()

    def start() -> None:
        for _ in range(2):
            try:
                inferences.start_async([])
            except ValueError:
                refused.append(1)

    def callers() -> None:
        for _ in range(2):
            schedule.Thread(start).start()
        early: list[Any] = inferences.wait_all()
        schedule.switch(lambda: len(schedule._tasks) <= 2)  # the callers have ended
        results = [*early, *inferences.wait_all()]
        assert results == list(range(4 - len(refused))) and inferences.is_ready()

    schedule.run(callers)
