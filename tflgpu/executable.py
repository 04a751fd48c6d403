"""What an executor needs of a model: buffers, launches and ports, as plain data.

Made from a plan by :func:`tflgpu.link.link`, or read back from the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.layout import Shape
from tflgpu.target import ElementType


@dataclass(frozen=True)
class DeviceBuffer:
    """One allocation on the device: ``data`` if it holds constants, else zeros at first."""

    bytes: int
    data: NDArray[np.uint8] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Slot:
    """A pointer argument: a buffer by number, and where in it, in elements of the pointer's type."""

    buffer: int
    offset: int = 0


@dataclass(frozen=True)
class Launch:
    """One launch of ``groups`` work-groups. operators: indices of the model's operators that it computes."""

    function: str
    groups: int
    local_size: int
    arguments: tuple[Slot, ...]
    operators: tuple[int, ...]
    macs: int


@dataclass(frozen=True)
class Port:
    """Where a model input or output lies, alone in its buffer and in the host's order.

    dtype: of the arrays that callers give and get; ``element`` is what the device has.
    """

    buffer: int
    shape: Shape
    element: ElementType
    dtype: str


@dataclass(frozen=True)
class StateBuffer:
    """A variable, alone in a buffer that keeps its value between runs.

    next: the buffer of the same size in which the launches leave the next run's value; None if they do so in this one.
    initial: what the buffer holds before the first run, None for zeros.
    """

    buffer: int
    next: int | None
    initial: NDArray[np.uint8] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Executable:
    """Launches in order over buffers by number."""

    buffers: tuple[DeviceBuffer, ...]
    launches: tuple[Launch, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[StateBuffer, ...] = ()


Array = NDArray[Any]
