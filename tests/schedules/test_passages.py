"""Copies and kernels of several inferences on three queues, whose commands run in any order that these allow."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tflgpu.artifact.executable import Array, Binding, DeviceBuffer, Executable
from tflgpu.runtime import pinned_memory, pinned_transfer
from tflgpu.runtime.device_memory import DeviceMemory
from tflgpu.runtime.executors import executor, in_flight
from tflgpu.runtime.executors.executor import Executor
from tflgpu.runtime.executors.in_flight import InFlightRun, InFlightRuns
from tflgpu.runtime.pinned_transfer import PinnedPassage, Slots

SIZE = pinned_memory.Lender.WORTHWHILE // 4
COMPLETE, QUEUED = 0, 3


class Command:
    """An event of pyopencl."""

    def __init__(self, driver: Driver, run: Callable[[], object], after: Sequence[Command]) -> None:
        self._driver, self.run, self.after, self.over = driver, run, after, False

    def wait(self) -> None:
        while not self.over:
            assert self._driver.go_on(), "what it waits for never comes"

    @property
    def command_execution_status(self) -> int:
        self._driver.go_on()
        return COMPLETE if self.over else QUEUED


class Queue:
    """A queue of pyopencl, whose commands run in order."""

    def __init__(self, driver: Driver) -> None:
        self.context, self.commands = driver, list[Command]()
        driver.queues.append(self)

    def flush(self) -> None:
        """Nothing is held back."""


class Memory:
    """Memory of the device."""

    def __init__(self, driver: Driver, _: int, size: int) -> None:
        self.bytes = np.full(size, 255, np.uint8)


class Driver:
    """The part of pyopencl that is used."""

    CommandQueue, Buffer, Error = Queue, Memory, RuntimeError
    mem_flags = map_flags = SimpleNamespace(READ_WRITE=0, ALLOC_HOST_PTR=0, READ=0, WRITE=0)
    command_execution_status = SimpleNamespace(COMPLETE=COMPLETE)

    def __init__(self, seed: int) -> None:
        self.draw, self.queues = random.Random(seed), list[Queue]()

    def enqueue(self, queue: Queue, run: Callable[[], object], wait_for: Sequence[Command] | None = None) -> Command:
        command = Command(self, run, wait_for or ())
        queue.commands.append(command)
        for _ in range(self.draw.randrange(3)):
            self.go_on()
        return command

    def go_on(self) -> bool:
        """Run one command that may begin. Returns whether there was one."""
        ready = [q for q in self.queues if q.commands and all(c.over for c in q.commands[0].after)]
        if ready:
            command = self.draw.choice(ready).commands.pop(0)
            command.run()
            command.over = True
        return bool(ready)

    def enqueue_copy(self, queue: Queue, target: Any, source: Any, is_blocking: bool, wait_for: Any = None) -> Command:
        assert not is_blocking
        to, origin = (memory.bytes if isinstance(memory, Memory) else memory for memory in (target, source))
        return self.enqueue(queue, lambda: np.copyto(to, origin), wait_for)

    def enqueue_map_buffer(self, _: Queue, buffer: Memory, *__: object) -> tuple[Array, None]:
        return buffer.bytes, None

    def enqueue_marker(self, queue: Queue) -> Command:
        return self.enqueue(queue, lambda: None)


class Doubling(Executor):
    """Twice and three times the input; a real executor but for its kernel and its memory."""

    def __init__(self, driver: Driver) -> None:
        places = [Binding(number, 0, (SIZE,), "float", "float32") for number in range(3)]
        self.executable = Executable((DeviceBuffer(4 * SIZE),) * 3, (), tuple(places[:1]), tuple(places[1:]), results=1)
        session: Any = SimpleNamespace(queue=Queue(driver), context=driver)
        self.session, self._driver, self._in_flight = session, driver, InFlightRuns(self._check)
        self._slots, self._output_numbers = Slots(self.executable, session), range(2)
        self._copied = set()
        self._transfer: Any = SimpleNamespace(passage=lambda i, o: PinnedPassage(self._slots, i, o))

    def _check(self, begun: float) -> None: ...
    def _bind(self, program: Any) -> None: ...
    def _make_transfer(self) -> Any: ...
    def _measure(self) -> Any: ...
    def _follow(self, kernel: Any) -> None: ...
    def _keep_states(self) -> None: ...

    def _settle(self, given: Mapping[int, DeviceMemory]) -> None:
        self._places = dict(given)

    def _start(self, ready: Any = ()) -> Any:
        memory: list[Any] = [self._places[n].buffer for n in range(3)]
        source, *targets = (each.bytes.view(np.float32) for each in memory)

        def run() -> None:
            for factor, target in enumerate(targets, 2):
                np.multiply(source, factor, out=target)

        queue: Any = self.session.queue
        return self._driver.enqueue(queue, run, ready)


@pytest.mark.parametrize("seed", range(25))
def test_each_inference_has_memory_of_its_own(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is waited for, kept or dropped, and in whatever order."""
    driver = Driver(seed)
    for module in pinned_memory, pinned_transfer, executor, in_flight:
        monkeypatch.setattr(module, "cl", driver)
    doubling, draw = Doubling(driver), driver.draw
    flights, kept = list[tuple[float, InFlightRun]](), list[tuple[float, Array]]()
    most, collected = 0, draw.choice([0.1, 0.45])
    for run in range(1, 30):
        x = np.full(SIZE, run, np.float32)
        flights.append((run, doubling.enqueue([x], {})))
        x[:] = -1
        while flights and draw.random() < collected:
            run_of, flight = flights.pop(draw.randrange(len(flights)))
            if draw.random() < 0.8:  # else nobody asks for the results
                kept += zip((2 * run_of, 3 * run_of), doubling.collect(flight), strict=True)
            del flight
        while kept and draw.random() < 0.4:
            kept.pop(draw.randrange(len(kept)))
        for number, array in kept:
            assert (array[0], array[-1]) == (number, number)
        assert len(doubling._in_flight.waiting) <= in_flight.AT_MOST
        most = max(most, len(doubling._in_flight.waiting) + len(flights))
    doubling._in_flight.wait_all()
    flights.clear()
    kept.clear()
    assert 0 < len(doubling._slots._spare) <= most
    assert 0 < len(doubling._slots.lender._free) <= pinned_memory.Lender.AT_MOST
