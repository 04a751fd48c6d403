"""Transfers: what executors ask of them, and those for devices that share the host's memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.artifact.executable import Array, Binding, Executable
from tflgpu.runtime.device_memory import DeviceMemory
from tflgpu.runtime.opencl.session import Session, copy
from tflgpu.target import HOST_DTYPES

Numbered = tuple[int, Array]  # an input's number and value


def view(memory: NDArray[np.uint8], binding: Binding) -> Array:
    """Return the array of one binding in its buffer's memory.

    Args:
        memory: The bytes of the whole buffer, on the host.
        binding: The place and the shape in it.
    """
    return memory[binding.offset : end(binding)].view(HOST_DTYPES[binding.element]).reshape(binding.shape)


def end(binding: Binding) -> int:
    """Where a binding ends in its buffer, in bytes."""
    return binding.offset + prod(binding.shape) * np.dtype(HOST_DTYPES[binding.element]).itemsize


class Passage:
    """Staging memory and events of one inference in flight. This one is the null object: it has no arrays.

    inputs, outputs: where kernels find inputs that come from the host, and leave outputs that go there, by number;
    those that are not here lie in the executable's own buffers. ready: events to wait for before inputs are read.
    """

    def __init__(self) -> None:
        self.inputs: dict[int, DeviceMemory] = {}
        self.outputs: dict[int, DeviceMemory] = {}
        self.ready: list[cl.Event] = []

    def leave(self, last: cl.Event | None) -> cl.Event | None:
        """Start to copy the outputs to the host.

        Args:
            last: The event of the commands before; None if there is none.

        Returns:
            The event to wait for.
        """
        return last

    def arrays(self) -> list[Array]:
        """Return the outputs as new arrays, once that event has come. To be called once."""
        return []


class Transfer(ABC):
    """Copies the inputs of one executable to the device, and its outputs back. Raises pyopencl's errors.

    ``write`` and ``read`` are for one inference at a time. Deleting pyopencl's event of a copy waits for the copy, so
    the events of a run are kept until the run is over, and so are arrays that are copied without an event.
    """

    def __init__(self, executable: Executable, buffers: Sequence[cl.Buffer], session: Session) -> None:
        self._buffers, self._queue = buffers, session.queue
        self._output_types = [np.dtype(p.dtype) for p in executable.outputs]
        self._copies: list[cl.Event | Array] = []

    @abstractmethod
    def write(self, inputs: Iterable[Numbered]) -> None:
        """Start to copy arrays to inputs; other inputs keep their values.

        Args:
            inputs: Arrays with their numbers.
        """

    @abstractmethod
    def read(self, numbers: Sequence[int]) -> list[Array]:
        """Wait for the queue, and return new arrays of outputs.

        Args:
            numbers: Those of the outputs.
        """

    @abstractmethod
    def passage(self, inputs: Sequence[Numbered], outputs: Sequence[int]) -> Passage:
        """Start the transfers of an inference. The arrays may change as soon as this returns.

        Args:
            inputs: Arrays with their numbers.
            outputs: Numbers of outputs that go to the host.
        """


class DirectTransfer(Transfer):
    """Copies from and to the callers' arrays directly, for devices that share the host's memory."""

    def __init__(self, executable: Executable, buffers: Sequence[cl.Buffer], session: Session) -> None:
        super().__init__(executable, buffers, session)
        self._sources = [(p, np.dtype(HOST_DTYPES[p.element])) for p in executable.inputs]
        self._targets = [(p, np.dtype(HOST_DTYPES[p.element])) for p in executable.outputs]

    def write(self, inputs: Iterable[Numbered]) -> None:
        """Copy inputs to the device.

        Args:
            inputs: Arrays with their numbers.
        """
        for number, given in inputs:
            self._copies += self.copy_in(number, np.ascontiguousarray(given, self._sources[number][1]))

    def read(self, numbers: Sequence[int]) -> list[Array]:
        """Copy outputs from the device.

        Args:
            numbers: Those of the outputs.
        """
        if not numbers:
            self._queue.finish()
        outputs = [self.converted(number, self.copy_out(number, is_blocking=True)[0]) for number in numbers]
        self._copies.clear()
        return outputs

    def passage(self, inputs: Sequence[Numbered], outputs: Sequence[int]) -> Passage:
        """Return the transfers of a run that is enqueued.

        Args:
            inputs: Arrays with their numbers.
            outputs: Numbers of outputs that go to the host.
        """
        return _DirectPassage(self, inputs, outputs)

    def copy_in(self, number: int, array: Array) -> tuple[cl.Event, ...]:
        """Start to copy an input. The events keep the array alive, too.

        Args:
            number: The input's.
            array: Of the input's type on the device.
        """
        binding, _ = self._sources[number]
        buffer = self._buffers[binding.buffer]
        return copy(self._queue, buffer, array, dst_offset=binding.offset, is_blocking=False)

    def copy_out(self, number: int, *, is_blocking: bool) -> tuple[Array, tuple[cl.Event, ...]]:
        """Copy an output to a new array that has its type on the device.

        Args:
            number: The output's.
            is_blocking: Whether to wait for the copy.

        Returns:
            The array, and the events of the copy.
        """
        binding, element = self._targets[number]
        array, buffer = np.empty(binding.shape, element), self._buffers[binding.buffer]
        return array, copy(self._queue, array, buffer, src_offset=binding.offset, is_blocking=is_blocking)

    def own(self, number: int, given: Array) -> Array:
        """Return a copy of an input in its type on the device.

        Args:
            number: The input's.
            given: A caller's array.
        """
        return np.array(given, self._sources[number][1], order="C")

    def converted(self, number: int, array: Array) -> Array:
        """Return an output in the type that callers get.

        Args:
            number: The output's.
            array: In its type on the device.
        """
        return array.astype(self._output_types[number], copy=False)


class _DirectPassage(Passage):
    """On the queue of the kernels, from copies of the callers' arrays, through the executable's own buffers."""

    def __init__(self, transfer: DirectTransfer, inputs: Sequence[Numbered], outputs: Sequence[int]) -> None:
        super().__init__()
        self._transfer, self._numbers = transfer, outputs
        self._sent = [transfer.copy_in(number, transfer.own(number, array)) for number, array in inputs]

    def leave(self, last: cl.Event | None) -> cl.Event | None:
        self._left = [self._transfer.copy_out(number, is_blocking=False) for number in self._numbers]
        events = [event for _, found in self._left for event in found]
        return events[-1] if events else last

    def arrays(self) -> list[Array]:
        return [self._transfer.converted(n, array) for n, (array, _) in zip(self._numbers, self._left, strict=True)]


class SharedTransfer(DirectTransfer):
    """Copies to and from memory that is the host's and the device's at once, without the queue.

    Among several inferences the queue has to keep the order, so there it copies as well. Who reads has waited for the
    kernels.
    """

    def __init__(
        self,
        executable: Executable,
        buffers: Sequence[cl.Buffer],
        session: Session,
        memory: Mapping[int, NDArray[np.uint8]],
    ) -> None:
        """memory: of the buffers with inputs and outputs, by number.

        The attributes ``inputs`` and ``copies`` are the inputs' places in it, and a function for each output that makes
        a copy of it.
        """
        super().__init__(executable, buffers, session)
        self.inputs = [view(memory[p.buffer], p) for p in executable.inputs]
        outputs = [view(memory[p.buffer], p) for p in executable.outputs]
        self.copies: list[Callable[[], Array]] = [  # an array's own copy takes less time than astype
            array.copy if array.dtype == dtype else partial(array.astype, dtype)
            for array, dtype in zip(outputs, self._output_types, strict=True)
        ]
        self._queue.finish()  # which sets the memory to zero; writes do not wait for the queue

    def write(self, inputs: Iterable[Numbered]) -> None:
        """Store inputs in memory that host and device share.

        Args:
            inputs: Arrays with their numbers.
        """
        for number, given in inputs:
            self.inputs[number][...] = given

    def read(self, numbers: Sequence[int]) -> list[Array]:
        """Copy outputs in memory that host and device share.

        Args:
            numbers: Those of the outputs.
        """
        return [self.copies[number]() for number in numbers]
