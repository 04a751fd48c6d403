"""The resource variables of an opened model: one value each, which all of its signatures read and write.

A signature's runs find the values where it needs them: on the device in the layout that its kernels were planned for,
or on the host for what the CPU runs and for loops and branches. A value stays where the last run left it, and is
brought to where the next run needs it. What only LiteRT can keep is in one interpreter of it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tflgpu.model.tensor_info import InitialValues, TensorInfo
from tflgpu.runtime.state_value import StateValue

if TYPE_CHECKING:  # few models need it
    from tflgpu.fallback.cpu_engine import InterpreterKeeper


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
