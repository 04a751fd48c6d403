"""The time of one run by how its inputs and outputs cross between host and device, as rows of JSON.

    python -m benchmarks.ways.transfers MODEL... [--device D] [--precision fp32] [--seconds 8] [--out FILE]

A MODEL is a .tflite file that runs on the device as a whole, or a name of benchmarks.zoo. The ways are: ``copied`` from
and to the callers' arrays; through ``pinned`` memory; ``mapped``, where the host copies from and to the model's buffers
while they are mapped; and ``in place``, where kernels read and write the caller's memory, which is mapped between runs.
The last two are for devices that share the host's memory. What kernels cannot use in place is ``copied`` there.

Runs are from arrays on the host to new arrays on the host. The caller keeps outputs until the end of the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

import tflgpu
from benchmarks.publish import publish
from benchmarks.ways.rounds import compare, device_partition, parsed_arguments, random_inputs
from benchmarks.zoo import load
from tflgpu.artifact.artifact import DevicePartition
from tflgpu.artifact.executable import Array, Binding, Executable
from tflgpu.options import Precision
from tflgpu.runtime.device_memory import DeviceMemory, Value
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.opencl.build import build
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import Program
from tflgpu.runtime.opencl.session import Session, open_session
from tflgpu.runtime.pinned_transfer import PinnedTransfer
from tflgpu.runtime.transfer import DirectTransfer, Numbered, Transfer
from tflgpu.target import HOST_DTYPES

ALL = cl.map_flags.READ | cl.map_flags.WRITE


def mapped(
    queue: cl.CommandQueue, buffer: cl.Buffer, binding: Binding, offset: int, access: int
) -> tuple[Array, cl.MemoryMap]:
    """An input or output that begins at byte ``offset`` of a buffer, when the queue is done."""
    dtype = np.dtype(HOST_DTYPES[binding.element])
    array, _ = cl.enqueue_map_buffer(queue, buffer, access, offset, binding.shape, dtype)  # type: ignore[arg-type]
    assert isinstance(array.base, cl.MemoryMap)
    return array, array.base


class MappedTransfer(DirectTransfer):
    """Copies on the host, from and to the model's buffers while they are mapped."""

    def __init__(self, executable: Executable, buffers: Sequence[cl.Buffer], session: Session) -> None:
        super().__init__(executable, buffers, session)
        self._inputs, self._outputs = executable.inputs, executable.outputs

    def write(self, inputs: Iterable[Numbered]) -> None:
        for number, array in inputs:
            memory, mapping = self._map(self._inputs[number], cl.map_flags.WRITE_INVALIDATE_REGION)
            memory[...] = array
            mapping.release(self._queue)

    def read(self, numbers: Sequence[int]) -> list[Array]:
        return [self._output(number) for number in numbers]

    def _output(self, number: int) -> Array:
        memory, mapping = self._map(self._outputs[number], cl.map_flags.READ)
        output = memory.astype(self._output_types[number])
        mapping.release(self._queue)
        return output

    def _map(self, binding: Binding, access: int) -> tuple[Array, cl.MemoryMap]:
        return mapped(self._queue, self._buffers[binding.buffer], binding, binding.offset, access)


class Chosen(LaunchExecutor):
    """A launch executor with a given kind of transfer."""

    def __init__(
        self, partition: DevicePartition, program: Program, session: Session, kind: Callable[..., Transfer]
    ) -> None:
        self._kind = kind
        super().__init__(partition.executable, program, session)

    def _make_transfer(self) -> Transfer:
        return self._kind(self.executable, self._buffers, self.session)


class InPlace:
    """Runs an executor on memory that host and kernels use in turns, where they can.

    Outputs take turns in two buffers, so that those of one run are there during the next.
    """

    def __init__(self, executor: LaunchExecutor, inputs: Sequence[Array]) -> None:
        self._executor, self._queue = executor, executor.session.queue
        sources, targets = executor.executable.inputs, executor.executable.outputs
        self._sources = {n: self._memory(b) for n, b in enumerate(sources) if _fits(b)}
        self._targets = [{n: self._memory(b) for n, b in enumerate(targets) if _fits(b)} for _ in range(2)]
        self._mappings = self._map_sources()
        for number, (array, _) in self._mappings.items():
            array[...] = inputs[number]
        self._inputs: list[Value] = [self._sources.get(n, array) for n, array in enumerate(inputs)]

    def _memory(self, binding: Binding) -> DeviceMemory:
        dtype = np.dtype(binding.dtype)
        size = int(np.prod(binding.shape)) * dtype.itemsize
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        return DeviceMemory(cl.Buffer(self._executor.session.context, flags, size), 0, binding.shape, dtype)

    def _map_sources(self) -> dict[int, tuple[Array, cl.MemoryMap]]:
        return self._map(self._sources, self._executor.executable.inputs)

    def _map(
        self, memory: Mapping[int, DeviceMemory], bindings: Sequence[Binding]
    ) -> dict[int, tuple[Array, cl.MemoryMap]]:
        return {n: mapped(self._queue, m.buffer, bindings[n], 0, ALL) for n, m in memory.items()}

    def run(self) -> list[Array]:
        for _, mapping in self._mappings.values():
            mapping.release(self._queue)
        self._targets.reverse()
        others = iter(self._executor.run(self._inputs, self._targets[0]))
        self._mappings = self._map_sources()
        outputs = self._executor.executable.outputs
        found = self._map(self._targets[0], outputs)
        return [found[n][0] if n in found else next(others) for n in range(len(outputs))]


def _fits(binding: Binding) -> bool:
    """Whether kernels can use a caller's array as it is."""
    return binding.exact and binding.dtype == HOST_DTYPES[binding.element]


def row(name: str, device: tflgpu.Device, precision: Precision, seconds: float) -> dict[str, Any]:
    partition = device_partition(load(name), device, precision)
    session = open_session(device)
    program, _ = build(partition.source, session)
    inputs = random_inputs(partition)
    kinds: dict[str, Callable[..., Transfer]] = {
        "copied": DirectTransfer,
        "pinned": PinnedTransfer,
        "mapped": MappedTransfer,
    }
    executors = {way: Chosen(partition, program, session, kind) for way, kind in kinds.items()}
    ways: dict[str, Callable[[], list[Array]]] = {way: partial(e.run, inputs) for way, e in executors.items()}
    ways["in place"] = InPlace(Chosen(partition, program, session, DirectTransfer), inputs).run
    return {
        "model": Path(name).stem,
        "precision": precision,
        "input_bytes": sum(array.nbytes for array in inputs),
        "output_bytes": sum(array.nbytes for array in executors["copied"].run(inputs)),
        "in_place": [_fits(binding) for binding in partition.executable.bindings],
        "ways": compare(ways, seconds),
    }


def main() -> None:
    arguments = parsed_arguments(__doc__.splitlines()[0])
    device = choose(arguments.device)
    found = (row(name, device, arguments.precision, arguments.seconds) for name in arguments.models)
    publish(found, device, arguments.out, shares_memory=device.limits.shares_memory)


if __name__ == "__main__":
    main()
