"""Processes that compile and measure bundles. Several share a device, which one of them has at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Lock

import tflgpu
from benchmarks.sweep.bundles import Bundle, error
from benchmarks.sweep.drawn_shapes import Drawn
from tflgpu.options import ExecutorChoice, KernelFamily, Precision
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import Session, open_session


@dataclass(frozen=True)
class Measured:
    """An operator's seconds, how many kernels it takes, and its error beside LiteRT's CPU."""

    drawn: Drawn
    seconds: float
    kernels: int
    error: float


@dataclass(frozen=True)
class _Place:
    """A device that this process has opened, and who has it."""

    session: Session
    turn: Lock


_place: _Place  # of this process


def pool(processes: int, devices: Sequence[int]) -> ProcessPoolExecutor:
    """``processes`` that share the devices out among themselves."""
    context = get_context("spawn")
    turns = {device: context.Lock() for device in devices}
    places: Queue[int] = context.Queue()
    for number in range(processes):
        places.put(devices[number % len(devices)])
    return ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(places, turns))


def _begin(places: Queue[int], turns: dict[int, Lock]) -> None:
    global _place
    index = places.get()
    with turns[index]:  # to open a device takes it for milliseconds, and what is measured would seem to
        _place = _Place(open_session(choose(index)), turns[index])


def measure_bundle(bundle: Bundle, precision: Precision, kernels: KernelFamily) -> list[Measured]:
    """All its operators, while no other process uses the device. They run by launches, steps in a persistent kernel.

    Nothing is stored in the cache: to link what it stores would take as long as to compile. Plans are by its costs.
    """
    device = _place.session.device
    executor: ExecutorChoice = "persistent" if bundle.has_steps and device.executor == "auto" else "launch"
    options = tflgpu.Options(
        device=device.index,
        precision=precision,
        execution=tflgpu.Execution(executor=executor, kernels=kernels),
        fallback="forbid",
        cache="read",
    )
    model, inputs = bundle.model(), bundle.inputs()
    with tflgpu.compile(model, options, queue=_place.session.queue) as compiled, _place.turn:
        got = list(compiled.run(inputs).values())  # now, while an LSTM has its first state
        seconds = bundle.seconds(compiled)
    errors = map(error, got, bundle.expected(model))
    return [Measured(*each) for each in zip(bundle.operators, *zip(*seconds, strict=True), errors, strict=True)]
