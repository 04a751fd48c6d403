"""Callers' arrays that come again and again, pinned so that a GPU reads them by itself."""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import Array

Region = tuple[int, int, int]  # of memory: identity of the array that owns it, address, bytes


@dataclass
class _Known:
    """A region that has come before. owner: of its memory, for as long as that lives. pin: what keeps it pinned."""

    owner: weakref.ref[Array]
    sightings: int = 0
    pin: cl.Buffer | None = None


class ArrayPins:
    """Knows the arrays that came last, and pins those that came often.

    Pinning takes as long as three or four copies to pinned memory (on an H200 130 us for 602 KB, which saves 38 us a
    run), so an array has paid for it when it comes for the fourth time: whoever fills one array again and again gets
    what :meth:`tflgpu.CompiledModel.pinned_array` gives, and whoever makes a new one for every run pays nothing.

    No array is kept alive: its pin is gone before its memory is.
    """

    WORTHWHILE = 1 << 16  # bytes
    SIGHTINGS = 4
    AT_MOST = 8  # regions: those that came longest ago are forgotten, and no longer pinned

    def __init__(self, context: cl.Context) -> None:
        self._context = context
        self._known: OrderedDict[Region, _Known] = OrderedDict()

    def hold(self, array: Array) -> bool:
        """Whether the memory of a contiguous array is pinned, now that it came once more."""
        owner = array if array.base is None else array.base
        # The memory of anything else than an array may go in ways that nobody hears of.
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
        return known.pin is not None

    def _pinned(self, region: Region) -> cl.Buffer | None:
        """A buffer that no kernel reads; that it exists pins the region. None if the driver refuses it."""
        _, address, size = region
        memory = (ctypes.c_char * size).from_address(address)  # a buffer refers to its memory: not to the array, so
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
        try:
            return cl.Buffer(self._context, flags, hostbuf=memory)
        except cl.Error:
            return None

    def _forgetting(self, region: Region) -> Callable[[object], None]:
        """What to call when the owner of a region is about to go."""
        this = weakref.ref(self)

        def forget(_: object) -> None:
            pins = this()
            if pins is not None:
                pins._known.pop(region, None)

        return forget
