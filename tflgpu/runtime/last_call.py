"""Request of a call of :meth:`tflgpu.CompiledModel.run`, and whether the next one asks for the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl

from tflgpu.artifact.executable import Array
from tflgpu.graph.layout import Shape
from tflgpu.runtime.device_memory import DeviceMemory, Value, is_device_array
from tflgpu.runtime.input_check import Inputs, Outputs


class Targets(NamedTuple):
    """Where the outputs of a call go.

    places: device memory for some of them, by number. names: of the others, which go to the host. arrays: the caller's,
    by name, for some of these.
    """

    places: Mapping[int, DeviceMemory]
    names: Sequence[str]
    arrays: Mapping[str, Array] = MappingProxyType({})

    def delivered(self, results: Sequence[Array]) -> dict[str, Array]:
        """Return the results of the host by name, except those for which the caller gave arrays: these arrays get them.

        Args:
            results: New arrays of outputs that did not stay on the device.
        """
        found = dict(zip(self.names, results)) if results else {}  # noqa: B905 - this takes less time
        if self.arrays:
            for name, array in self.arrays.items():
                np.copyto(array, found.pop(name))
        return found


class _Place(NamedTuple):
    """Where an array on the device was; pyopencl's Array, not a Buffer, which does not move."""

    array: Any
    buffer: object
    offset: int
    shape: Shape


class _Known(NamedTuple):
    """A call: its arguments, where its arrays were, and what came of them."""

    arguments: list[Any]
    places: list[_Place]
    values: Sequence[Value]
    targets: Targets


class LastCall:
    """The last call on the device, if all arrays that it got are there.

    To examine arrays takes some microseconds, in which a GPU has nothing to do; to see that nothing is new takes one.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        """queue: the model's. Arrays with another one have to be waited for in each call."""
        self._queue = queue
        self._known: _Known | None = None

    def again(self, inputs: Inputs, outputs: Outputs | None) -> _Known | None:
        """Return the kept call, if these arguments are the same arrays, and they are where they were.

        Args:
            inputs: A caller's.
            outputs: A caller's.
        """
        known = self._known  # another thread may keep another call
        if known is None:
            return None
        found = _arguments(inputs, outputs)
        if len(found) != len(known.arguments) or not all(map(is_, found, known.arguments)):
            return None
        for array, buffer, offset, shape in known.places:
            if array.base_data is not buffer or array.offset != offset or array.shape != shape:
                return None
            if array.queue is not self._queue:
                return None
        return known

    def keep(self, values: Sequence[Value], targets: Targets, inputs: Inputs, outputs: Outputs | None) -> None:
        """Keep a call, and its arrays alive, until the next one on the device or :meth:`forget`.

        Args:
            values: Made of the inputs.
            targets: Made of the outputs.
            inputs: A caller's.
            outputs: A caller's.
        """
        found = _arguments(inputs, outputs)
        arrays = [a for a in found if not isinstance(a, str)]
        if not all(map(is_device_array, arrays)):
            self._known = None
            return
        places = [_Place(a, a.base_data, a.offset, a.shape) for a in arrays if not isinstance(a, cl.Buffer)]
        self._known = _Known(found, places, values, targets)

    def forget(self) -> None:
        """Keep no array alive any longer."""
        self._known = None


def _arguments(inputs: Inputs, outputs: Outputs | None) -> list[Any]:
    """Return the arrays of a call, with the names that they were given by: calls with the same ones are the same."""
    found: list[Any] = [*inputs] if type(inputs) is list else [inputs]
    if type(inputs) is dict:
        found = [*inputs, *inputs.values()]
    if outputs:
        found += outputs
        found += outputs.values()
    return found
