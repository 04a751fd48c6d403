"""Runs on arrays of the caller's: ranges of larger buffers, of which no other byte may be written or used."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray
from pyopencl.array import Array as DeviceArray

import tflgpu

MARGIN = 256  # bytes ahead of an array, and after it


class Guarded:
    """An array on the device between two margins, all of it filled with a word."""

    def __init__(self, model: tflgpu.CompiledModel, info: tflgpu.TensorInfo, word: int, random: Random) -> None:
        dtype = np.dtype(info.dtype)
        self._queue, self._bytes = model.queue, int(np.prod(info.shape, dtype=int)) * dtype.itemsize
        self._offset = MARGIN - random.choice((0, 64, dtype.itemsize))
        self._before = np.resize(np.array([word], np.uint32), (2 * MARGIN + self._bytes + 3) // 4).view(np.uint8)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        buffer = cl.Buffer(self._queue.context, flags, hostbuf=self._before)
        self.array = DeviceArray(self._queue, tuple(info.shape), dtype, data=buffer, offset=self._offset)

    def set(self, value: NDArray[Any]) -> None:
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        self._before[self._offset : self._offset + self._bytes] = flat
        cl.enqueue_copy(self._queue, self.array.base_data, self._before)

    def value(self) -> NDArray[Any]:
        """Raises AssertionError if anything around the array has changed."""
        after = np.empty_like(self._before)
        cl.enqueue_copy(self._queue, after, self.array.base_data)
        end = self._offset + self._bytes
        for margin in (slice(0, self._offset), slice(end, None)):
            assert (after[margin] == self._before[margin]).all(), "bytes around a caller's array were written"
        return after[self._offset : end].view(self.array.dtype).reshape(self.array.shape)


def run_on_device_arrays(
    model: tflgpu.CompiledModel, inputs: Sequence[NDArray[Any]], word: int, random: Random
) -> list[NDArray[Any]]:
    """All outputs of a run whose inputs and outputs lie on the device."""
    given = [Guarded(model, info, word, random) for info in model.inputs]
    for guarded, value in zip(given, inputs, strict=True):
        guarded.set(value)
    wanted = {info.name: Guarded(model, info, word, random) for info in model.outputs}
    left = model.run([g.array for g in given], {name: g.array for name, g in wanted.items()})
    assert not left
    for guarded, value in zip(given, inputs, strict=True):
        assert guarded.value().tobytes() == np.ascontiguousarray(value).tobytes(), "an input was written"
    return [guarded.value() for guarded in wanted.values()]
