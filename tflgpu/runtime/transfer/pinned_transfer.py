"""Transfers for GPUs with memory of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import pyopencl as cl

from tflgpu.artifact.executable import Array, Executable
from tflgpu.runtime.opencl.session import Session
from tflgpu.runtime.transfer.large_copies import fill
from tflgpu.runtime.transfer.pinned_memory import Lender, OutputStaging, Staging, is_mapped
from tflgpu.runtime.transfer.pinned_passage import PinnedPassage, Slots
from tflgpu.runtime.transfer.pinning import ArrayPins
from tflgpu.runtime.transfer.silent_copies import SilentCopies
from tflgpu.runtime.transfer.transfer import Numbered, Passage, Transfer


class PinnedTransfer(Transfer):
    """Copies through pinned host memory, which a GPU reads and writes directly: once for all inputs or all outputs.

    Large outputs are not copied on the host: callers get the pinned memory itself, lent for as long as an array of it
    lives.
    """

    def __init__(self, executable: Executable, buffers: Sequence[cl.Buffer], session: Session) -> None:
        super().__init__(executable, buffers, session)
        self._executable, self._session = executable, session
        self._inputs = Staging(executable.inputs, session.queue)
        self._outputs = OutputStaging(executable, session.queue)
        self._lender = Lender(executable, session.queue)
        self._pins = ArrayPins(session.context)
        self._silent = SilentCopies(session.queue)

    def write(self, inputs: Iterable[Numbered]) -> None:
        """Copy inputs to the device by way of pinned memory, those that are pinned already directly.

        Args:
            inputs: Arrays with their numbers.
        """
        pinned = []
        staged = False
        for number, array in inputs:
            place = self._inputs.views[number]
            as_it_is = array.dtype == place.dtype and array.flags.c_contiguous
            if as_it_is and (is_mapped(array) or self._pins.hold(array)):
                pinned.append((self._executable.inputs[number], array))
            else:
                fill(place, array)
                staged = True
        if staged:
            for n, memory in self._inputs.blocks.items():
                self._copies += self._silent.write(self._buffers[n], memory)
        for binding, array in pinned:
            self._copies += self._silent.write(self._buffers[binding.buffer], array, binding.offset)
        if self._copies:
            self._queue.flush()  # so that the device begins while the host prepares the launch

    def read(self, numbers: Sequence[int]) -> list[Array]:
        """Copy outputs from the device by way of pinned memory.

        Args:
            numbers: Those of the outputs.
        """
        if not numbers:
            self._queue.finish()
            self._copies.clear()
            return []
        lent = self._lender.lend()
        for n, memory in self._outputs.places(lent).items():
            self._copies += self._silent.read(memory, self._buffers[n])
        self._queue.finish()
        self._copies.clear()
        return self._outputs.arrays(numbers, lent)

    def passage(self, inputs: Sequence[Numbered], outputs: Sequence[int]) -> Passage:
        """Return the transfers of a run that is enqueued.

        Args:
            inputs: Arrays with their numbers.
            outputs: Numbers of outputs that go to the host.
        """
        return PinnedPassage(self._slots, inputs, outputs)

    @cached_property
    def _slots(self) -> Slots:
        return Slots(self._executable, self._session)
