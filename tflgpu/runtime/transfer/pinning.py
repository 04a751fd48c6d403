"""Pins callers' arrays that are used again and again, so that a GPU reads them directly."""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import Array

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
