"""Arrays on an interpreter's own memory, and which of them a program still holds."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class _Memory:
    """Memory that a view and everything sliced from it keep alive."""

    def __init__(self, array: Array) -> None:
        self._array = array
        self.__array_interface__ = array.__array_interface__


class Views:
    """Counts the views that were given out: a run replaces what they look at, and they would not notice."""

    def __init__(self) -> None:
        self._held: WeakSet[_Memory] = WeakSet()

    def of(self, array: Array) -> Array:
        """Return another array on the same memory, whose life is known.

        Args:
            array: The owner of the memory.
        """
        memory = _Memory(array)
        self._held.add(memory)
        return np.asarray(memory)

    def check_released(self) -> None:
        """Raise RuntimeError while a program holds a view, or a part of one."""
        if self._held:
            raise RuntimeError(
                "There is at least 1 reference to internal data in the interpreter in the form of a numpy array or "
                "slice. Be sure to only hold the function returned from tensor() if you are using raw data access."
            )
