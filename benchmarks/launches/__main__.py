"""The time of one run by how its launches get to the device, as rows of JSON.

    python -m benchmarks.launches MODEL... [--device D] [--precision fp32] [--seconds 8] [--out FILE]

A MODEL is a .tflite file that runs on the device as a whole, a name of benchmarks.zoo, or ``tiny``: ABS of four floats.
The ways are: launches alone, as the launch executor enqueues them; launches with ``clFlush`` behind the first, behind
every eighth, behind every 32nd, and behind the last; and one command buffer with all of them, where the device has
``cl_khr_command_buffer``. In each round the ways of a model come in another order, with one run to warm up and one that
counts, and have to give the same bits. ``alone again`` is the same as ``alone``: what tells them apart is noise.

``run`` is from arrays on the host to arrays on the host, ``enqueue`` how long the host is busy handing over the
launches of it. ``ratio`` is the median over the rounds of a run's time by that of ``alone`` in the same round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyopencl as cl

import tflgpu
from benchmarks.launches.command_buffer import CommandBuffer, version_of
from benchmarks.overhead import tiny
from benchmarks.publish import publish
from benchmarks.zoo import load
from tflgpu.artifact.artifact import DevicePartition
from tflgpu.artifact.executable import Array
from tflgpu.compiler import compile_model
from tflgpu.runtime.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session

ALONE = "alone"

SEED = 0


class Submitter(LaunchExecutor):
    """A launch executor whose launches are enqueued in one of several ways. enqueue_seconds: of the last run."""

    way: Callable[[], None] | None = None
    enqueue_seconds = 0.0

    def _start(self) -> None:
        start = time.perf_counter()
        (self.way or super()._start)()
        self.enqueue_seconds = time.perf_counter() - start

    def flushing(self, *, first: bool = False, every: int = 0) -> Callable[[], None]:
        """Launches with a flush behind the first, or behind every so many, or behind the last."""
        count = len(self._launches)
        behind = {0} if first else set(range(every - 1, count, every)) if every else {count - 1}

        def start() -> None:
            queue = self.session.queue
            for number, launch in enumerate(self._launches):
                cl.enqueue_nd_range_kernel(queue, *launch)
                if number in behind:
                    queue.flush()

        return start

    def recorded(self) -> CommandBuffer:
        return CommandBuffer(self.session.queue, self._launches)


def open_model(model: bytes, device: tflgpu.Device, precision: str) -> Submitter:
    options = tflgpu.Options(device=device.index, precision=precision, executor="launch", cache="off")
    (artifact,) = compile_model(model, options, device.target(options))
    (partition,) = artifact.partitions
    if not isinstance(partition, DevicePartition):
        raise SystemExit("a part of the model runs on the CPU")
    session = open_session(device)
    return Submitter(partition.executable, build(partition.source, session)[0], session)


def row(name: str, device: tflgpu.Device, precision: str, seconds: float) -> dict[str, Any]:
    executor = open_model(tiny() if name == "tiny" else load(name), device, precision)
    ways: dict[str, Callable[[], None] | None] = {
        ALONE: None,
        "alone again": None,
        "flush first": executor.flushing(first=True),
        "flush every 8": executor.flushing(every=8),
        "flush every 32": executor.flushing(every=32),
        "flush last": executor.flushing(),
    }
    recorded = executor.recorded() if version_of(device.handle) is not None else None
    if recorded is not None:
        ways["command buffer"] = recorded.enqueue
    random = np.random.default_rng(SEED)
    inputs = [(16 * random.random(b.shape)).astype(b.dtype) for b in executor.executable.inputs]
    wanted = executor.run(inputs)
    runs: dict[str, list[float]] = {way: [] for way in ways}
    enqueues: dict[str, list[float]] = {way: [] for way in ways}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for way in random.permutation(list(ways)):
            executor.way = ways[way]
            executor.run(inputs)
            begin = time.perf_counter()
            got = executor.run(inputs)
            runs[way].append(time.perf_counter() - begin)
            enqueues[way].append(executor.enqueue_seconds)
            check(way, got, wanted)
    if recorded is not None:
        recorded.release()
    return {
        "model": Path(name).stem,
        "precision": precision,
        "launches": len(executor.executable.launches),
        "rounds": len(runs[ALONE]),
        "ways": {
            way: {
                "run_us": microseconds(median(runs[way])),
                "least_run_us": microseconds(min(runs[way])),
                "enqueue_us": microseconds(median(enqueues[way])),
                "ratio": round(median(a / b for a, b in zip(runs[way], runs[ALONE], strict=True)), 3),
                "least_ratio": round(min(runs[way]) / min(runs[ALONE]), 3),
            }
            for way in ways
        },
    }


def check(way: str, got: list[Array], wanted: list[Array]) -> None:
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=way)


def microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 1)


def rows(models: list[str], device: tflgpu.Device, precision: str, seconds: float) -> Iterator[dict[str, Any]]:
    for name in models:
        yield row(name, device, precision, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--seconds", type=float, default=8, help="for each model")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    found = rows(arguments.models, device, arguments.precision, arguments.seconds)
    publish(found, device, arguments.out, command_buffer_version=version_of(device.handle))


if __name__ == "__main__":
    main()
