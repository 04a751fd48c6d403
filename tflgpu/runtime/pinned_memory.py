"""Pinned host memory, which a GPU reads and writes by itself: the library's own, and callers' arrays."""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from tflgpu.artifact.executable import Array, Binding, Executable
from tflgpu.graph.layout import Shape
from tflgpu.runtime.opencl.session import Session
from tflgpu.runtime.transfer import end, view


class Staging:
    """Pinned memory in which inputs or outputs lie as in the device's buffers, up to the last one.

    blocks: by number of buffer.
    """

    def __init__(self, bindings: Sequence[Binding], queue: cl.CommandQueue) -> None:
        """queue: whose commands this waits for."""
        numbers = sorted({binding.buffer for binding in bindings})
        ends = {n: max(end(binding) for binding in bindings if binding.buffer == n) for n in numbers}
        self.blocks = {n: _pinned(queue, size) for n, size in ends.items()}
        self.views = [view(self.blocks[binding.buffer], binding) for binding in bindings]


class OutputStaging(Staging):
    """For outputs, of which large ones go to memory that is lent to callers instead."""

    def __init__(self, executable: Executable, queue: cl.CommandQueue) -> None:
        super().__init__(executable.outputs, queue)
        self._bindings, self._results = executable.outputs, executable.results
        self._types = [np.dtype(binding.dtype) for binding in executable.outputs]

    def places(self, lent: NDArray[np.uint8] | None) -> Mapping[int, NDArray[np.uint8]]:
        """Return where the buffers are copied to, by number.

        Args:
            lent: Memory for the buffer of results; None for this object's own.
        """
        return self.blocks if lent is None or self._results not in self.blocks else self.blocks | {self._results: lent}

    def arrays(self, numbers: Sequence[int], lent: NDArray[np.uint8] | None) -> list[Array]:
        """Return outputs: in lent memory, if they are there; else copies.

        Args:
            numbers: Those of the outputs.
            lent: Memory for the buffer of results; None for this object's own.
        """
        return [self._array(number, lent) for number in numbers]

    def _array(self, number: int, lent: NDArray[np.uint8] | None) -> Array:
        binding, dtype = self._bindings[number], self._types[number]
        if lent is None or binding.buffer != self._results:
            return self.views[number].astype(dtype)
        return view(lent, binding).astype(dtype, copy=False)


class Lender:
    """Lends pinned memory to callers: copying megabytes out of it would take longer than all kernels."""

    WORTHWHILE = 1 << 18  # bytes
    AT_MOST = 4  # blocks: a caller who keeps all outputs must not take all of the host's memory

    def __init__(self, executable: Executable, queue: cl.CommandQueue) -> None:
        """For the executable's buffer of results. queue: whose commands :meth:`lend` may wait for."""
        self._queue = queue
        self._size = max((end(p) for p in executable.outputs if p.buffer == executable.results), default=0)
        self._made = 0
        self._free: list[NDArray[np.uint8]] = []

    def lend(self) -> NDArray[np.uint8] | None:
        """Return a block, lent until the last array of it is freed; None if it is not worthwhile, or all are lent."""
        if self._size < self.WORTHWHILE or (not self._free and self._made == self.AT_MOST):
            return None
        if not self._free:
            self._free.append(_pinned(self._queue, self._size))
            self._made += 1
        block = self._free.pop()
        # The base of ``lent`` is no array, so all views of it refer to ``lent`` itself, and it is freed last.
        lent = np.frombuffer(block.data, np.uint8)
        weakref.finalize(lent, self._free.append, block).atexit = False
        return lent


def pinned_array(session: Session, shape: Shape, dtype: str) -> Array:
    """Return zeros in pinned memory, which a GPU reads directly: a run does not copy them on the host.

    Args:
        session: The GPU.
        shape: The array's.
        dtype: Numpy's name of the element type.
    """
    kind = np.dtype(dtype)
    return _pinned(session.queue, prod(shape) * kind.itemsize).view(kind).reshape(shape)


def is_mapped(array: Array) -> bool:
    """Whether this is a view of memory that OpenCL has mapped."""
    return isinstance(array.base, np.ndarray) and isinstance(array.base.base, cl.MemoryMap)


def _pinned(queue: cl.CommandQueue, size: int) -> NDArray[np.uint8]:
    """``size`` zero bytes in pinned host memory, which stays mapped as long as the array lives."""
    flags, access = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, cl.map_flags.READ | cl.map_flags.WRITE
    held = max(1, size)  # OpenCL has no empty buffers
    buffer = cl.Buffer(queue.context, flags, held)
    array: NDArray[np.uint8]
    array, _ = cl.enqueue_map_buffer(queue, buffer, access, 0, (held,), np.dtype(np.uint8))  # type: ignore[arg-type]
    array[:] = 0
    return array[:size]


Region = tuple[int, int, int]  # of memory: id() of the array that owns it, address, bytes


@dataclass
class _Known:
    """A region that was used before. owner: the array that owns its memory. pin: the buffer that keeps it pinned."""

    owner: weakref.ref[Array]
    sightings: int = 0
    pin: cl.Buffer | None = None


def _nothing() -> None:
    """Return nothing, as a weak reference does whose array is gone."""


class ArrayPins:
    """Remembers the arrays that were used last, and pins those that were used often.

    Pinning takes as long as three or four copies to pinned memory: on an H200 130 us for 602 KB, which saves 38 us in
    each run. So an array is pinned when it is used for the fourth time. A caller who fills one array again and again
    then runs as fast as with :meth:`tflgpu.CompiledModel.pinned_array`; a caller who makes a new array for each run
    loses no time.

    No array is kept alive: it is no longer pinned when its memory is freed.
    """

    WORTHWHILE = 1 << 16  # bytes
    SIGHTINGS = 4
    AT_MOST = 8  # regions: the one unused for longest is forgotten, and no longer pinned

    def __init__(self, context: cl.Context) -> None:
        self._context = context
        self._known: OrderedDict[Region, _Known] = OrderedDict()
        self._last: Callable[[], Array | None] = _nothing  # a weak reference to the last array, if it is pinned

    def hold(self, array: Array) -> bool:
        """Count one more use of a contiguous array. Returns whether its memory is pinned."""
        if self._last() is array:
            return True
        self._last = _nothing
        owner = array if array.base is None else array.base
        # Only an array that owns its memory tells, by a weak reference, when the memory is freed.
        if array.nbytes < self.WORTHWHILE or not isinstance(owner, np.ndarray) or not owner.flags.owndata:
            return False
        region = id(owner), array.__array_interface__["data"][0], array.nbytes
        known = self._known.get(region)
        if known is None:
            known = self._known[region] = _Known(weakref.ref(owner, self._forgetting(region)))
            if len(self._known) > self.AT_MOST:
                self._known.popitem(last=False)
        self._known.move_to_end(region)
        known.sightings += 1
        if known.sightings == self.SIGHTINGS:
            known.pin = self._pinned(region)
        if known.pin is None:
            return False
        self._last = weakref.ref(array)
        return True

    def _pinned(self, region: Region) -> cl.Buffer | None:
        """Return a buffer that pins the region while it exists; no kernel reads it. None if the driver refuses it."""
        _, address, size = region
        memory = (ctypes.c_char * size).from_address(address)  # the buffer refers to this, not to the array
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
        try:
            return cl.Buffer(self._context, flags, hostbuf=memory)
        except cl.Error:
            return None

    def _forgetting(self, region: Region) -> Callable[[object], None]:
        """Return the function to call when the owner of a region is about to be freed."""
        this = weakref.ref(self)

        def forget(_: object) -> None:
            pins = this()
            if pins is not None:
                pins._known.pop(region, None)

        return forget
