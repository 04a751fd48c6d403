"""Protocol of a transfer for executors, and the way of one inference's arrays among several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from math import prod

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.artifact.executable import Array, Binding, Executable
from tflgpu.runtime.device_memory import DeviceMemory
from tflgpu.runtime.opencl.session import Session
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
