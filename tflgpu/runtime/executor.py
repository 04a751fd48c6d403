"""The launch executor: one kernel launch for each kernel of the plan, on one in-order queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.errors import DeviceError
from tflgpu.ir import TensorId
from tflgpu.layout import LANES
from tflgpu.ops.kernel import Argument
from tflgpu.plan import Plan
from tflgpu.plan.arena import aligned
from tflgpu.runtime.session import Session
from tflgpu.target import ITEM_BYTES, ElementType

Array = NDArray[Any]
HOST_DTYPES: dict[ElementType, type[np.generic]] = {
    "float": np.float32,
    "half": np.float16,
    "int": np.int32,
    "short": np.int16,
    "char": np.int8,
    "uchar": np.uint8,
}


@dataclass(frozen=True)
class Kernels:
    """A compiled program, and the name of the function that each kernel of the plan launches."""

    program: cl.Program
    names: tuple[str, ...]


class Executor:
    """Device memory and launches of one plan. Not thread-safe: the caller serializes :meth:`run`."""

    def __init__(self, plan: Plan, kernels: Kernels, session: Session, *, separate_buffers: bool = False) -> None:
        """Upload constants and bind every argument.

        separate_buffers: give every tensor memory of its own instead of a part of one arena, so that a checker of
        memory accesses sees each tensor's true end.
        """
        self.plan = plan
        self.session = session
        self._memory = _Memory(plan, session, separate_buffers)
        self._launches: list[tuple[cl.Kernel, tuple[int], tuple[int]]] = []
        for planned, name in zip(plan.kernels, kernels.names, strict=True):
            kernel = cl.Kernel(kernels.program, name)
            for i, argument in enumerate(planned.arguments):
                place = self._memory.place(argument)
                kernel.set_arg(2 * i, place.buffer)
                kernel.set_arg(2 * i + 1, np.uint64(place.offset // ITEM_BYTES[argument.type]))
            size = planned.kernel.local_size
            self._launches.append((kernel, (planned.kernel.tiles * size,), (size,)))
        self._outputs = [(plan.graph[t].shape, HOST_DTYPES[plan.storage[t].type]) for t in plan.graph.outputs]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One inference: arrays in the order of the graph's inputs, fresh arrays back, both in the storage's type."""
        try:
            held = self._write(inputs)
            queue = self.session.queue
            for kernel, global_size, local_size in self._launches:
                cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size)
            results = self._read()
            del held  # the copies are done
            return results
        except cl.Error as error:
            raise DeviceError(f"{self.session.device.name} failed while running the model: {error}") from error

    def profile(self, inputs: Sequence[Array]) -> list[float]:
        """Seconds on the device of each kernel in one inference; the session must have been opened for profiling."""
        held = self._write(inputs)
        events = [cl.enqueue_nd_range_kernel(self.session.queue, *launch) for launch in self._launches]
        self.session.queue.finish()
        del held
        return [(e.profile.end - e.profile.start) * 1e-9 for e in events]

    def _write(self, inputs: Sequence[Array]) -> list[Array]:
        """Start copying; what comes back must live until the queue is done with it."""
        types = (HOST_DTYPES[self.plan.storage[t].type] for t in self.plan.graph.inputs)
        arrays = [np.ascontiguousarray(a, dtype) for a, dtype in zip(inputs, types, strict=True)]
        for tensor, array in zip(self.plan.graph.inputs, arrays, strict=True):
            cl.enqueue_copy(self.session.queue, self._memory.tensor(tensor).buffer, array, is_blocking=False)
        return arrays

    def _read(self) -> list[Array]:
        outputs = [np.empty(shape, dtype) for shape, dtype in self._outputs]
        for tensor, array in zip(self.plan.graph.outputs, outputs, strict=True):
            cl.enqueue_copy(self.session.queue, array, self._memory.tensor(tensor).buffer, is_blocking=False)
        self.session.queue.finish()
        return outputs


@dataclass(frozen=True)
class _Place:
    """Where a tensor or a constant lies: a buffer and bytes from its beginning."""

    buffer: cl.Buffer
    offset: int = 0


class _Memory:
    """Device memory of a plan: one arena, one block of constants, and a buffer for each input and output.

    Kernels are given a buffer and an offset. Sub-buffers would say the same, but NVIDIA's driver 580 crashes when
    overlapping ones are released. clSetKernelArg does not keep a buffer alive, so all of them are held here.
    """

    def __init__(self, plan: Plan, session: Session, separate: bool) -> None:
        self.plan, self.session, self.separate = plan, session, separate
        self._arena = None if separate or not plan.arena_bytes else self._allocate(plan.arena_bytes)
        self._tensors: dict[TensorId, _Place] = {}
        self._constants = self._upload_constants()

    def place(self, argument: Argument) -> _Place:
        return self._constants[id(argument.data)] if argument.tensor is None else self.tensor(argument.tensor)

    def tensor(self, tensor: TensorId) -> _Place:
        root = self.plan.roots[tensor]
        if root not in self._tensors:
            offset = self.plan.offsets.get(root)
            if self._arena is not None and offset is not None:
                self._tensors[root] = _Place(self._arena, offset)
            else:
                self._tensors[root] = _Place(self._allocate(self.plan.storage[root].bytes))
        return self._tensors[root]

    def _allocate(self, size: int) -> cl.Buffer:
        """A buffer of zeros: lanes past the last channel of an input are never written."""
        try:
            buffer = cl.Buffer(self.session.context, cl.mem_flags.READ_WRITE, size)
            cl.enqueue_fill(self.session.queue, buffer, np.zeros(1, np.uint8), size)
        except cl.Error as error:
            raise DeviceError(
                f"{self.session.device.name} has no {size} bytes left for activations: {error}"
            ) from error
        return buffer

    def _upload_constants(self) -> dict[int, _Place]:
        """Every distinct constant once, by the identity of its array."""
        arrays = {id(a.data): _elements(a) for k in self.plan.kernels for a in k.arguments if a.data is not None}
        if self.separate:
            return {key: _Place(self._upload(array)) for key, array in arrays.items()}
        offsets: dict[int, int] = {}
        end = 0
        for key, array in arrays.items():
            offsets[key], end = end, end + aligned(array.nbytes)
        block = np.zeros(max(end, 1), np.uint8)
        for key, array in arrays.items():
            block[offsets[key] : offsets[key] + array.nbytes] = array.view(np.uint8)
        buffer = self._upload(block)
        return {key: _Place(buffer, offset) for key, offset in offsets.items()}

    def _upload(self, array: NDArray[np.generic]) -> cl.Buffer:
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        try:
            return cl.Buffer(self.session.context, flags, hostbuf=array)
        except cl.Error as error:
            name = self.session.device.name
            raise DeviceError(f"{name} has no {array.nbytes} bytes left for weights: {error}") from error


def _elements(argument: Argument) -> NDArray[np.generic]:
    """A constant as the device stores it, with room for a 16-lane access that begins at its last quad."""
    assert argument.data is not None
    elements = np.zeros(argument.data.size + 3 * LANES, HOST_DTYPES[argument.type])
    with np.errstate(over="ignore"):  # beyond half precision's range is infinity, as on the device
        elements[: argument.data.size] = argument.data.reshape(-1)
    return elements
