"""The time of one run by how its launches get to the device, as rows of JSON.

    python -m benchmarks.ways.launches MODEL... [--device D] [--precision fp32] [--seconds 8] [--out FILE]

A MODEL is a .tflite file that runs on the device as a whole, a name of benchmarks.zoo, or ``tiny``: ABS of four floats.
The ways are: launches alone, as the launch executor enqueues them; launches with ``clFlush`` behind the first, behind
every eighth, behind every 32nd, and behind the last; and one command buffer with all of them, where the device has
``cl_khr_command_buffer``. ``alone again`` is the same as ``alone``: what tells them apart is noise.

Runs are from arrays on the host to arrays on the host. ``enqueue_us`` is how long the host is busy handing over the
launches of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyopencl as cl

import tflgpu
from benchmarks.overhead import tiny
from benchmarks.publish import publish
from benchmarks.ways.command_buffer import CommandBuffer, version_of
from benchmarks.ways.rounds import compare, device_partition, microseconds, parsed_arguments, random_inputs
from benchmarks.zoo import load
from tflgpu.artifact.executable import Array
from tflgpu.options import Precision
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session

Start = Callable[[], object]


class Submitter(LaunchExecutor):
    """A launch executor whose launches are enqueued in one of several ways. enqueue_seconds: of all runs, by way."""

    way = "alone"

    def prepare(self) -> None:
        """Make the ways. Not more than once."""
        self.ways: dict[str, Start] = {
            "alone": super()._start_silently,
            "alone again": super()._start_silently,
            "flush first": self._flushing({0}),
            "flush every 8": self._flushing(set(range(7, len(self._launches), 8))),
            "flush every 32": self._flushing(set(range(31, len(self._launches), 32))),
            "flush last": self._flushing({len(self._launches) - 1}),
        }
        self._recorded = None
        if version_of(self.session.device.handle) is not None:
            self._recorded = CommandBuffer(self.session.queue, self._launches)
            self.ways["command buffer"] = self._recorded.enqueue
        self.enqueue_seconds: dict[str, list[float]] = {way: [] for way in self.ways}

    def _flushing(self, behind: set[int]) -> Start:
        def start() -> None:
            queue = self.session.queue
            for number, launch in enumerate(self._launches):
                cl.enqueue_nd_range_kernel(queue, *launch)
                if number in behind:
                    queue.flush()

        return start

    def _start_silently(self) -> None:
        begin = time.perf_counter()
        self.ways[self.way]()
        self.enqueue_seconds[self.way].append(time.perf_counter() - begin)

    def run_in(self, way: str, inputs: list[Array]) -> list[Array]:
        self.way = way
        return self.run(inputs)

    def close(self) -> None:
        if self._recorded is not None:
            self._recorded.release()


def row(name: str, device: tflgpu.Device, precision: Precision, seconds: float) -> dict[str, Any]:
    partition = device_partition(tiny() if name == "tiny" else load(name), device, precision)
    session = open_session(device)
    executor = Submitter(partition.executable, build(partition.source, session)[0], session)
    executor.prepare()
    inputs = random_inputs(partition)
    found = compare({way: lambda way=way: executor.run_in(way, inputs) for way in executor.ways}, seconds)  # type: ignore[misc]
    executor.close()
    for way, times in executor.enqueue_seconds.items():
        found[way]["enqueue_us"] = microseconds(median(times))
    return {
        "model": Path(name).stem,
        "precision": precision,
        "launches": len(partition.executable.launches),
        "ways": found,
    }


def main() -> None:
    arguments = parsed_arguments(__doc__.splitlines()[0])
    device = choose(arguments.device)
    found = (row(name, device, arguments.precision, arguments.seconds) for name in arguments.models)
    publish(found, device, arguments.out, command_buffer_version=version_of(device.handle))


if __name__ == "__main__":
    main()
