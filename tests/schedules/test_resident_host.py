"""The host of resident work-groups against the claiming kernel, both in drawn schedules.

Each access of the host to the words that it shares with the device, and each of its calls, lets the device take some
steps first.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.schedules.claiming import Claiming
from tests.schedules.kernel_c import compile_kernel
from tests.schedules.machine import Accesses, State, join
from tests.schedules.networks import GIVE, TAKE, Layers, visits
from tflgpu.runtime.executors import resident
from tflgpu.runtime.executors.resident import Pace, ResidentKernel

LAYERS = ((2,), (1, 1))
COMPLETE, RUNNING = 0, 1


class Launch:
    """An event of pyopencl: work-groups on their way. before: the launch that a queue has to wait for."""

    def __init__(self, device: Device, begin: tuple[Any, ...], before: Launch | None) -> None:
        self._device, self._begin, self._before = device, begin, before
        self.items: list[int] | None = None

    def advance(self) -> bool:
        """Begin if the queue allows it. Returns whether all has ended."""
        if self.items is None and (self._before is None or self._before.advance()):
            self.items = self._device.state.launch(*self._begin)
        return self.items is not None and all(self._device.state.items[n].next.kind == "end" for n in self.items)

    @property
    def command_execution_status(self) -> int:
        self._device.go_on()
        return COMPLETE if self.advance() else RUNNING

    def wait(self) -> None:
        while not self.advance():
            self._device.pace = (30,)  # the host needs no core
            self._device.go_on()
        assert self.items is not None
        for number in self.items:
            self._device.learn(self._device.state.items[number].known)


class Queue:
    """A queue of pyopencl. computes: whether its kernels have ended when the call that launches them returns."""

    def __init__(self, computes: bool = False) -> None:
        self.computes = computes
        self.last: Launch | None = None

    def flush(self) -> None:
        """Nothing is held back."""

    def finish(self) -> None:
        if self.last is not None:
            self.last.wait()


class Device:
    """A device whose work-groups go on while the host computes, and the part of pyopencl that the host uses."""

    command_execution_status = SimpleNamespace(COMPLETE=COMPLETE)
    Error = type("Error", (Exception,), {})

    def __init__(self, layers: Layers, groups: int, seed: int) -> None:
        self.draw, self.state = random.Random(seed), State(["words"], visits(layers))
        self.kernel, self._groups, self._now = Claiming(layers), groups, 1.0
        (self._host,) = self.state.launch(compile_kernel("__kernel void host(int none) {}", "host"), {}, 1)
        self.spin_limit, self.launches = self.draw.choice([0, 1, 50]), list[Launch]()
        self.change_pace()

    def change_pace(self) -> None:
        """Draw whether work-groups have a core of their own from now on, and let more or less time pass."""
        self.pace = self.draw.choice([(0,), (0, 0, 1), (0, 1, 3, 30)])
        self._now += self.draw.choice([0, 2 * resident.PACE.burst_seconds])

    @property
    def data(self) -> Device:
        """The words are a memory view of themselves."""
        return self

    def go_on(self) -> None:
        """Let the device take some steps, and time pass."""
        for launch in self.launches:
            launch.advance()
        for _ in range(self.draw.choice(self.pace)):
            choices = list(self.state.choices())
            if choices:
                self.state.step(*self.draw.choice(choices))
        self._now += self.draw.choice([0, 1e-6, 3e-5])

    def learn(self, known: bytes) -> None:
        item = self.state.items[self._host]
        self.state.items[self._host] = item._replace(known=join(item.known, known))

    def __getitem__(self, word: int) -> int:
        """An acquire: x86 has no other loads. Only what the device has released is known by it."""
        self.go_on()
        written = self.state._writes(("words", word))[-1]
        self.learn(written.released)
        return written.value

    def __setitem__(self, word: int, value: int) -> None:
        self.go_on()
        item, pointer = self.state.items[self._host], ("words", word)
        place = self.state.places.of(pointer)
        self.state.items[self._host] = self.state._stored(item, pointer, place, int(value), "r", None)

    def enqueue_nd_range_kernel(
        self, queue: Queue, kernel: dict[str, int], size: tuple[int], _: tuple[int], first: tuple[int] = (0,)
    ) -> Launch:
        self.go_on()
        known = self.state.items[self._host].known
        numbers = {"spin_limit": self.spin_limit, "begin": 0, "end": self.kernel.end, "groups": self._groups, **kernel}
        begin = self.kernel.program, numbers, size[0], 1, first[0], known
        launch = queue.last = Launch(self, begin, queue.last)
        self.launches.append(launch)
        if queue.computes:
            launch.wait()
        return launch

    def now(self) -> float:
        self.go_on()
        return self._now

    def host(self, what: int, run: int) -> None:
        """Give the input of a run, or take its results."""
        self.state.visit(Accesses(self.state, self._host), what, run)


def run_drawn(groups: int, seed: int, patch: pytest.MonkeyPatch) -> None:
    """Run a network five times on a device that was drawn."""
    device = Device(LAYERS if seed % 2 else LAYERS[:1], groups, seed)
    patch.setattr(resident, "cl", device)
    patch.setattr(resident, "perf_counter", device.now)
    patch.setattr(resident, "sleep", lambda _: device.go_on())
    queue = Queue(computes=groups > 1)
    others, polls = Queue() if groups > 1 else queue, {"lingers": device.draw.choice([1, 3, 1000])}
    words: Any = device
    kernel = ResidentKernel(groups, words, words, {"lingers": 0}, polls, queue, others, Pace(first_backoff=1))  # type: ignore[arg-type]
    for run in range(1, 6):
        device.change_pace()
        device.host(GIVE, run)
        kernel.wait(kernel.start())
        device.host(TAKE, run)
        if device.draw.random() < 0.2:
            kernel.leave()
    kernel.leave()
    assert all(launch.advance() for launch in device.launches), "their memory may go"


@pytest.mark.parametrize("groups", [1, 2])
def test_results_are_those_of_the_run_that_was_asked_for(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(40):
        run_drawn(groups, seed, monkeypatch)
