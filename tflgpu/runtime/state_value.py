"""A state of a session: what one run writes and a later one reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tflgpu.artifact.artifact import BoundState
from tflgpu.artifact.executable import Array
from tflgpu.graph.layout import Shape
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.runtime.executors.held_state import HeldState
from tflgpu.runtime.opencl.session import Session


class StateValue:
    """The value of one state, zeros at first. Not thread-safe: the session serializes the calls."""

    def __init__(self, info: TensorInfo) -> None:
        """info: of the input that reads it, with the shape that the file declares."""
        self._info = info
        self._array: Array | None = None  # None for zeros, and where the device has the value
        self._held: HeldState | None = None
        self._is_on_device = False

    def on_device(self, form: BoundState, session: Session) -> HeldState:
        """The value in memory that kernels read and write, for a state of this form.

        Raises ValueError if the value has another shape, DeviceError if memory runs out.
        """
        held = self._held
        if held is not None and self._is_on_device and held.fits(form):
            return held
        is_zeros = self._array is None and not self._is_on_device
        value = None if is_zeros else self.on_host(form.binding.shape)
        if held is None or not held.fits(form):
            held = self._held = HeldState(form, session)
        elif is_zeros:
            held.clear()
        if value is not None:
            held.write(value)
        self._array, self._is_on_device = None, True
        return held

    def on_host(self, shape: Shape) -> Array:
        """The value, for an input of this shape. Raises ValueError if it has another one."""
        if self._is_on_device:
            assert self._held is not None
            self.take(self._held.read().astype(self._info.dtype, copy=False))
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
        self._array, self._is_on_device = array, False

    def array(self) -> Array:
        """A copy of the value."""
        if self._is_on_device:
            assert self._held is not None
            return self._held.read().astype(self._info.dtype, copy=False)
        return self.on_host(self._shape).copy()

    def reset(self, value: Array | None = None) -> None:
        """Set it to zeros, or to a value that :meth:`checked` returned."""
        self._array, self._is_on_device = value, False

    def checked(self, value: ArrayLike) -> Array:
        """A copy of a value for :meth:`reset`.

        Raises:
            ValueError: It has another shape or element type.
        """
        array = np.array(value)
        shape = self._shape
        if array.shape != shape or array.dtype != self._info.dtype:
            raise ValueError(
                f"state {self._info.name!r} is {self._info.dtype}{list(shape)}; {array.dtype}{list(array.shape)} was "
                "given"
            )
        return array

    @property
    def _shape(self) -> Shape:
        """Of the value; the file's until a run says another one."""
        if self._held is not None:
            return self._held.form.binding.shape
        return self._info.shape if self._array is None else self._array.shape
