"""A model as an executor needs it: buffers, launches and bindings, as plain data.

:func:`tflgpu.codegen.link.link` makes it from a plan, or it is read from the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.layout import Shape
from tflgpu.target import ITEM_BYTES, ElementType, cpu_work

LARGEST = 1 << 62  # what counts or bytes of an executable stay below, so that sums fit 64 bits

HEADER = 256  # bytes, so that what follows is aligned for every device

CACHE_LINE = 16  # words

RANGE_ALIGNMENT = 4096  # bytes; devices want ranges of a buffer to begin at multiples of 512 of them at most


@dataclass(frozen=True)
class DeviceBuffer:
    """One allocation on the device, of ``bytes``. It starts with ``data`` if it holds constants, else with zeros.

    shared: it is the allocation of this number among those that earlier executables of the file share with this one.
    """

    bytes: int
    data: NDArray[np.uint8] | None = field(default=None, compare=False, repr=False)
    shared: int | None = None


@dataclass(frozen=True)
class Constant:
    """Where a large constant lies that other executables may use, too. digest: of its bytes as the device has them."""

    digest: str
    buffer: int
    offset: int


@dataclass(frozen=True)
class SharedConstants:
    """An allocation of constants that an executable shares with later ones. offsets: in bytes, by digest."""

    bytes: int
    offsets: Mapping[str, int]


def shared_constants(executable: Executable) -> dict[int, SharedConstants]:
    """Return what an executable has to share, by number of its buffer."""
    offsets: dict[int, dict[str, int]] = {}
    for constant in executable.constants:
        offsets.setdefault(constant.buffer, {})[constant.digest] = constant.offset
    return {number: SharedConstants(executable.buffers[number].bytes, found) for number, found in offsets.items()}


@dataclass(frozen=True)
class Slot:
    """A pointer argument: a buffer by number, and an offset in elements of ``item_bytes`` each, the pointer's type."""

    buffer: int
    offset: int
    item_bytes: int

    @property
    def place(self) -> tuple[int, int]:
        """Buffer, and offset in bytes: the same memory, whatever the pointer's type."""
        return self.buffer, self.offset * self.item_bytes


@dataclass(frozen=True)
class Launch:
    """One launch of ``groups`` work-groups.

    operators: indices of the model's operators that it computes.
    macs: multiplications of convolutions and matrix products.
    bytes: that it reads and writes, each counted once (:func:`tflgpu.plan.plan.traffic`).
    interval: number of its barrier interval. It depends only on launches of lower intervals, also through memory
    that several tensors use in turn.
    key: of its kernel, by which a narrower one is asked for: :meth:`tflgpu.kernels.request.Request.key`.
    """

    key: str
    function: str
    groups: int
    local_size: int
    arguments: tuple[Slot, ...]
    operators: tuple[int, ...]
    macs: int
    bytes: int
    interval: int

    @property
    def work(self) -> int:
        """The launch's work in multiply-adds, its bytes included."""
        return cpu_work(self.macs, self.bytes)


@dataclass(frozen=True)
class Binding:
    """Where a model input or output lies, in the host's order.

    offset: in bytes. dtype: of the arrays that callers give and get. element: the type on the device.
    exact: kernels touch no byte after the last element, so that the caller's own memory can be used instead.
    """

    buffer: int
    offset: int
    shape: Shape
    element: ElementType
    dtype: str
    exact: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Buffer, and offset in bytes. The :attr:`Slot.place` of the launches' arguments that point to it."""
        return self.buffer, self.offset


@dataclass(frozen=True)
class StateBuffer:
    """A variable, alone in a buffer that keeps its value between runs.

    next: the buffer of the same size to which the launches write the next run's value; None if they write it in place.
    initial: the buffer's contents before the first run, None for zeros. held: whether callers hold the buffers' memory,
    and give other memory for other runs.
    """

    buffer: int
    next: int | None
    initial: NDArray[np.uint8] | None = field(default=None, compare=False, repr=False)
    held: bool = False


@dataclass(frozen=True)
class PersistentRun:
    """One launch of a persistent kernel, which runs the launches from the place ``begin`` to ``end`` of an order."""

    function: str
    begin: int
    end: int


@dataclass(frozen=True)
class Persistent:
    """All launches of an executable as one kernel, or as a few that run one after another, some of them repeatedly.

    Arguments of each are one buffer that has all others (:attr:`Executable.ranges`) and after them a clock for each
    launch and one more, the buffers apart from it, every movable binding and its offset in bytes, then those of
    ``templates/executor/persistent.cl.j2``. The buffer of results begins with the barrier's two words, which are zero
    before the first run.
    runs: the launches of kernels, in order.
    order: the numbers of the executable's launches as the kernels run them.
    clock: whether the kernels can read the device's clock after each of them.
    """

    runs: tuple[PersistentRun, ...]
    local_size: int
    order: tuple[int, ...]
    clock: bool

    @property
    def functions(self) -> tuple[str, ...]:
        """The kernels, by name."""
        return tuple(dict.fromkeys(run.function for run in self.runs))

    @property
    def repeated(self) -> frozenset[str]:
        """The kernels that are launched more than once, and take their places as arguments."""
        return frozenset(name for name, number in Counter(run.function for run in self.runs).items() if number > 1)

    @property
    def clock_bytes(self) -> int:
        """Bytes of 64-bit times: ahead of the first launch and after each."""
        return 8 * (len(self.order) + 1)


@dataclass(frozen=True)
class Claiming:
    """All launches of an executable as one kernel for a CPU, whose work-groups claim tiles.

    Its arguments are every buffer by number, every movable binding and its offset in bytes, then those of
    ``templates/executor/claiming.cl.j2``.
    order: the numbers of the launches as the kernel runs them.
    """

    function: str
    order: tuple[int, ...]

    @property
    def row(self) -> int:
        """Words of a counter for each launch, in whole lines of a cache."""
        return -(-len(self.order) // CACHE_LINE) * CACHE_LINE

    def counter_words(self, groups: int) -> int:
        """Return the number of 32-bit words that counters take.

        They are a line of words about runs, a row of finished tiles, and one of claimed tiles for each work-group.

        Args:
            groups: Work-groups.
        """
        return CACHE_LINE + (1 + groups) * self.row


@dataclass(frozen=True)
class Executable:
    """Launches in order over buffers by number; ``persistent`` or ``claiming`` is set if one kernel runs all of them.

    results: number of the buffer that begins with ``HEADER`` bytes for the executor. The outputs follow, if they share
    a buffer. launch_parts: parts of the program that can be compiled alone, if each launch is one. constants: the large
    ones of its own buffers.

    Raises ValueError for memory outside of the buffers: nothing later looks at it, and a file of the cache may say
    anything. What kernels do with their memory cannot be known from here.
    """

    buffers: tuple[DeviceBuffer, ...]
    launches: tuple[Launch, ...]
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    states: tuple[StateBuffer, ...] = ()
    results: int = 0
    persistent: Persistent | None = None
    claiming: Claiming | None = None
    launch_parts: int = 1
    constants: tuple[Constant, ...] = ()

    def __post_init__(self) -> None:
        for buffer in self.buffers:
            if not 0 < buffer.bytes < LARGEST or (buffer.data is not None and buffer.data.nbytes != buffer.bytes):
                raise ValueError(f"a buffer has {buffer.bytes} bytes")
        for launch in self.launches:
            if not (0 < launch.groups < LARGEST and 0 < launch.local_size < LARGEST):
                raise ValueError(f"a launch has {launch.groups} groups of {launch.local_size}")
            for slot in launch.arguments:
                self._check_place(*slot.place, slot.item_bytes)
        for binding in self.bindings:
            if any(size < 0 for size in binding.shape):
                raise ValueError(f"a binding has shape {list(binding.shape)}")
            self._check_place(*binding.place, prod(binding.shape) * ITEM_BYTES[binding.element])
        for state in self.states:
            size = 0 if state.initial is None else state.initial.nbytes
            for number in (state.buffer, state.buffer if state.next is None else state.next):
                self._check_place(number, 0, size)
        self._check_place(self.results, 0, 0)
        for kernel in (self.persistent, self.claiming):
            if kernel and sorted(kernel.order) != list(range(len(self.launches))):
                raise ValueError(f"one kernel runs launches {list(kernel.order)} of {len(self.launches)}")
        if self.persistent:
            ends = [0, *(run.end for run in self.persistent.runs)]
            begins = [*(run.begin for run in self.persistent.runs), len(self.launches)]
            if begins != ends:
                raise ValueError(f"runs of kernels begin at {begins} and end at {ends}")

    def _check_place(self, buffer: int, offset: int, size: int) -> None:
        """Raise ValueError unless a buffer has ``size`` bytes from ``offset`` on."""
        if not (0 <= buffer < len(self.buffers) and offset >= 0 and size >= 0):
            raise ValueError(f"byte {offset} of buffer {buffer} of {len(self.buffers)} is meant")
        if offset + size > self.buffers[buffer].bytes:
            raise ValueError(f"bytes {offset} to {offset + size} of {self.buffers[buffer].bytes} are meant")

    def without_constants(self) -> Executable:
        """Return the same without the contents of its buffers, which the device has once they are uploaded."""
        return replace(self, buffers=tuple(replace(buffer, data=None) for buffer in self.buffers))

    @property
    def parts(self) -> int:
        """How many parts the program has that can be compiled alone."""
        return len(self.persistent.functions) if self.persistent else self.launch_parts

    @property
    def held(self) -> tuple[int, ...]:
        """The numbers of the buffers whose memory callers hold."""
        states = (state for state in self.states if state.held)
        return tuple(b for state in states for b in (state.buffer, state.next) if b is not None)

    @property
    def apart(self) -> tuple[int, ...]:
        """The numbers of the buffers that are no part of one that has all others: callers hold or it shares them."""
        return (*self.held, *(number for number, buffer in enumerate(self.buffers) if buffer.shared is not None))

    @property
    def ranges(self) -> tuple[int, ...]:
        """Where each buffer would begin in a buffer that has them all, in bytes, and where the last one would end.

        Those apart are empty there.
        """
        sizes = [-(-b.bytes // RANGE_ALIGNMENT) * RANGE_ALIGNMENT for b in self.buffers]
        for number in self.apart:
            sizes[number] = 0
        return tuple(accumulate(sizes, initial=0))

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)

    @property
    def movable(self) -> tuple[int, ...]:
        """The numbers of the bindings that can lie in the caller's memory."""
        return tuple(number for number, binding in enumerate(self.bindings) if binding.exact)


Array = NDArray[Any]
