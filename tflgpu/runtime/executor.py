"""The launch executor: one kernel launch for each kernel of the plan, on one in-order queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.errors import DeviceError
from tflgpu.ir import TensorId
from tflgpu.ops.kernel import Argument
from tflgpu.plan import Plan
from tflgpu.runtime.session import Session

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Kernels:
    """Compiled programs by function name, and the function that each kernel of the plan launches."""

    programs: dict[str, cl.Program]
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
            kernel = cl.Kernel(kernels.programs[name], name)
            kernel.set_args(*(self._memory.buffer(a) for a in planned.arguments))
            size = planned.kernel.local_size
            self._launches.append((kernel, (planned.kernel.tiles * size,), (size,)))
        self._outputs = [np.empty(plan.graph[t].shape, np.float32) for t in plan.graph.outputs]

    def run(self, inputs: Sequence[Floats]) -> list[Floats]:
        """One inference: contiguous float32 arrays in the order of the graph's inputs, fresh arrays back."""
        try:
            self._write(inputs)
            queue = self.session.queue
            for kernel, global_size, local_size in self._launches:
                cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size)
            return self._read()
        except cl.Error as error:
            raise DeviceError(f"{self.session.device.name} failed while running the model: {error}") from error

    def profile(self, inputs: Sequence[Floats]) -> list[float]:
        """Seconds on the device of each kernel in one inference; the session must have been opened for profiling."""
        self._write(inputs)
        events = [cl.enqueue_nd_range_kernel(self.session.queue, *launch) for launch in self._launches]
        self.session.queue.finish()
        return [(e.profile.end - e.profile.start) * 1e-9 for e in events]

    def _write(self, inputs: Sequence[Floats]) -> None:
        for tensor, array in zip(self.plan.graph.inputs, inputs, strict=True):
            # Waiting for the copy lets the caller change the array as soon as run returns; on an in-order queue it costs nothing more.
            cl.enqueue_copy(self.session.queue, self._memory.tensor(tensor), array, is_blocking=False)

    def _read(self) -> list[Floats]:
        outputs = [np.empty_like(o) for o in self._outputs]
        for tensor, array in zip(self.plan.graph.outputs, outputs, strict=True):
            cl.enqueue_copy(self.session.queue, array, self._memory.tensor(tensor), is_blocking=False)
        self.session.queue.finish()
        return outputs


class _Memory:
    """Buffers of a plan: one arena, one block of constants, and a buffer for each input and output.

    clSetKernelArg does not keep a buffer alive, so all of them are held here.
    """

    def __init__(self, plan: Plan, session: Session, separate: bool) -> None:
        self.plan, self.session = plan, session
        self._tensors: dict[TensorId, cl.Buffer] = {}
        self._constants: dict[int, cl.Buffer] = {}
        self._arena = None if separate or not plan.arena_bytes else self._allocate(plan.arena_bytes)
        self._views: dict[tuple[int, int], cl.Buffer] = {}

    def buffer(self, argument: Argument) -> cl.Buffer:
        return self.tensor(argument.tensor) if argument.tensor is not None else self._constant(argument)

    def tensor(self, tensor: TensorId) -> cl.Buffer:
        root = self.plan.roots[tensor]
        if root not in self._tensors:
            self._tensors[root] = self._place(root)
        return self._tensors[root]

    def _place(self, root: TensorId) -> cl.Buffer:
        size, offset = self.plan.storage[root].bytes, self.plan.offsets.get(root)
        if self._arena is None or offset is None:
            return self._allocate(size)
        if (offset, size) not in self._views:
            self._views[offset, size] = self._arena.get_sub_region(offset, size)
        return self._views[offset, size]

    def _allocate(self, size: int) -> cl.Buffer:
        """A buffer of zeros: lanes past the last channel of an input are never written."""
        try:
            buffer = cl.Buffer(self.session.context, cl.mem_flags.READ_WRITE, size)
            cl.enqueue_fill(self.session.queue, buffer, np.uint8(0), size)
        except cl.Error as error:
            raise DeviceError(
                f"{self.session.device.name} has no {size} bytes left for activations: {error}"
            ) from error
        return buffer

    def _constant(self, argument: Argument) -> cl.Buffer:
        key = id(argument.data)
        if key not in self._constants:
            assert argument.data is not None
            array = np.ascontiguousarray(argument.data, np.float32 if argument.type == "float" else np.float16)
            padded = np.concatenate(
                [array.reshape(-1), np.zeros(16, array.dtype)]
            )  # room for a 16-lane read at the end
            flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
            try:
                self._constants[key] = cl.Buffer(self.session.context, flags, hostbuf=padded)
            except cl.Error as error:
                raise DeviceError(
                    f"{self.session.device.name} has no {padded.nbytes} bytes left for weights: {error}"
                ) from error
        return self._constants[key]
