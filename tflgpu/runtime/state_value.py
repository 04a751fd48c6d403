"""A state of a session: what one run writes and a later one reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tflgpu.artifact.executable import Array
from tflgpu.graph.layout import Shape
from tflgpu.model.tensor_info import TensorInfo


class StateValue:
    """The value of one state, zeros at first. Not thread-safe: the session serializes the calls."""

    def __init__(self, info: TensorInfo) -> None:
        """info: of the input that reads it, with the shape that the file declares."""
        self._info = info
        self._array: Array | None = None

    def on_host(self, shape: Shape) -> Array:
        """The value, for an input of this shape. Raises ValueError if it has another one."""
        if self._array is None:
            self._array = np.zeros(shape, self._info.dtype)
        if self._array.shape != shape:
            raise ValueError(
                f"state {self._info.name!r} has shape {list(self._array.shape)}; an input of shape {list(shape)} "
                "reads it"
            )
        return self._array

    def take(self, array: Array) -> None:
        """Let it have a new value, which nothing else changes."""
        self._array = array

    def array(self) -> Array:
        """A copy of the value."""
        return self.on_host(self._info.shape if self._array is None else self._array.shape).copy()

    def reset(self, value: Array | None = None) -> None:
        """Set it to zeros, or to a value that :meth:`checked` returned."""
        self._array = value

    def checked(self, value: ArrayLike) -> Array:
        """A copy of a value for :meth:`reset`.

        Raises:
            ValueError: It has another shape or element type.
        """
        array = np.array(value)
        shape = self._info.shape if self._array is None else self._array.shape
        if array.shape != shape or array.dtype != self._info.dtype:
            raise ValueError(
                f"state {self._info.name!r} is {self._info.dtype}{list(shape)}; {array.dtype}{list(array.shape)} was "
                "given"
            )
        return array
