"""Values that runs pass on: a state of a session, or a variable of a model for all of its signatures.

A signature's runs find the values where it needs them: on the device in the layout that its kernels were planned for,
or on the host for what the CPU runs and for loops and branches. A value stays where the last run left it, and is
brought to where the next run needs it. What only LiteRT can keep is in one interpreter of it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from tflgpu.artifact.artifact import BoundState
from tflgpu.artifact.executable import Array
from tflgpu.graph.layout import Shape
from tflgpu.model.tensor_info import InitialValues, TensorInfo
from tflgpu.runtime.executors.buffers import HeldState
from tflgpu.runtime.opencl.session import Session

if TYPE_CHECKING:
    from tflgpu.fallback.cpu_engine import InterpreterKeeper


QUANTIZED = ("int8", "uint8", "int16")  # whose elements the device has as the real numbers that they stand for


class StateValue:
    """The value of one state, zeros at first, in the elements of the file. Not thread-safe: who has it serializes."""

    def __init__(self, info: TensorInfo) -> None:
        """info: of the input that reads it, with the shape that the file declares."""
        self._info = info
        self._array: Array | None = None  # None for zeros, and where the device has the value
        self._held: HeldState | None = None
        self._is_on_device = False
        is_quantized = info.quantization is not None and info.dtype in QUANTIZED
        self._quantization = info.quantization if is_quantized else None

    def on_device(self, form: BoundState, session: Session) -> HeldState:
        """Return the value in memory that kernels read and write.

        Args:
            form: The state of the executable that will run.
            session: That executable's.

        Raises:
            ValueError: The value has another shape.
            DeviceError: Memory runs out.
        """
        held = self._held
        if held is not None and self._is_on_device and held.fits(form, session):
            return held
        are_zeros = self._array is None and not self._is_on_device and not self._has_offset
        value = None if are_zeros else self.on_host(form.binding.shape)
        if held is None or not held.fits(form, session):
            held = self._held = HeldState(form, session)
        elif are_zeros:
            held.clear()
        if value is not None:
            held.write(value if self._quantization is None else self._quantization.numbers(value))
        self._array, self._is_on_device = None, True
        return held

    def on_host(self, shape: Shape | None = None) -> Array:
        """Return the value as an array.

        Args:
            shape: That of the input that will read it; None for any.

        Raises:
            ValueError: The value has another shape.
        """
        if self._is_on_device:
            self.take(self._read())
        if self._array is None:
            self._array = np.zeros(self._info.shape if shape is None else shape, self._info.dtype)
        if shape is not None and self._array.shape != shape:
            raise ValueError(
                f"state {self._info.name!r} has shape {list(self._array.shape)}; an input of shape {list(shape)} "
                "reads it"
            )
        return self._array

    def take(self, array: Array) -> None:
        """Let it have a new value, which nothing else changes."""
        self._array, self._is_on_device = array, False

    def array(self) -> Array:
        """Return a copy of the value."""
        return self._read() if self._is_on_device else self.on_host(self._shape).copy()

    def reset(self, value: Array | None = None) -> None:
        """Set the value.

        Args:
            value: An array of :meth:`checked`; None for zeros.
        """
        self._array, self._is_on_device = value, False

    def checked(self, value: ArrayLike) -> Array:
        """Return a copy of a value for :meth:`reset`.

        Args:
            value: A caller's.

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
        """Shape of the value; the file's until a run says another one."""
        if self._held is not None:
            return self._held.form.binding.shape
        return self._info.shape if self._array is None else self._array.shape

    @property
    def _has_offset(self) -> bool:
        """Whether elements of 0 stand for another number."""
        return self._quantization is not None and self._quantization.zero_point[0] != 0

    def _read(self) -> Array:
        """Return the value on the device as a new array, in elements of the file."""
        assert self._held is not None
        numbers = self._held.read()
        if self._quantization is None:
            return numbers.astype(self._info.dtype, copy=False)
        return self._quantization.integers(numbers, self._info.dtype)


class VariableValues:
    """The values of variables by key, zeros at first. Not thread-safe: see :class:`ModelVariables`.

    Attributes:
        in_place_for: Token of the instance whose executors hold the buffers of all its variables; None if there is
            none. A caller of :meth:`value` may move a value, so that this clears the token. An instance that finds its
            own token need not place the values again.
    """

    def __init__(self) -> None:
        self.in_place_for: object | None = None
        self._values: dict[str, StateValue] = {}
        self._initialized: set[int] = set()  # the subgraphs of CALL_ONCEs
        self._keeper: InterpreterKeeper | None = None

    def keeper(self) -> InterpreterKeeper:
        """Return the owner of what LiteRT keeps."""
        if self._keeper is None:
            from tflgpu.fallback.cpu_engine import InterpreterKeeper

            self._keeper = InterpreterKeeper()
        return self._keeper

    def value(self, key: str, info: TensorInfo) -> StateValue:
        """Return the value of a variable.

        Args:
            key: The variable's in all signatures.
            info: The form in which a run reads or writes it.
        """
        self.in_place_for = None
        if key not in self._values:
            self._values[key] = StateValue(info)
        return self._values[key]

    def initialize(self, first: Sequence[InitialValues]) -> None:
        """Give the variables the values of each CALL_ONCE that has not given them yet.

        Args:
            first: Those that a signature needs.
        """
        for once in first:
            if once.subgraph not in self._initialized:
                self._initialized.add(once.subgraph)
                for each in once.values:
                    self.value(each.key, each.info).take(np.array(each.value))

    def reset(self) -> None:
        """Forget all values, so that CALL_ONCEs initialize again."""
        self._initialized.clear()
        self.in_place_for = None
        for value in self._values.values():
            value.reset()
        if self._keeper is not None:
            self._keeper.reset()


class ModelVariables:
    """The values of a model's variables, for runs of its signatures by any thread.

    A run opens them by ``with variables.lock, variables as values``.

    A signal handler that interrupts a run cannot wait for it, and the values may be those of half a run: what it runs
    has values of its own.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # of every runner of a signature with variables
        self._depth = 0  # runs that the thread with the lock is in the middle of
        self._values: dict[int, VariableValues] = {}  # by depth
        self._late_resets: set[int] = set()  # depths of runs after which the values are to be reset

    def __enter__(self) -> VariableValues:
        """Open the values, for one run. The thread has the lock."""
        depth, self._depth = self._depth, self._depth + 1
        values = self._values.get(depth)
        if values is None:
            values = self._values[depth] = VariableValues()
        return values

    def __exit__(self, *_: object) -> None:
        depth = self._depth = self._depth - 1
        if depth in self._late_resets:
            self._late_resets.discard(depth)
            self._values[depth].reset()

    def reset(self) -> None:
        """Forget all values; those of runs that this thread is in the middle of when these are over."""
        with self.lock:
            self._late_resets.update(range(self._depth))
            for depth, values in self._values.items():
                if depth >= self._depth:
                    values.reset()
