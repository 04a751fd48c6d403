"""Checks the arguments of :meth:`tflgpu.CompiledModel.run` and puts them in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tflgpu.artifact.executable import Array
from tflgpu.errors import UnsupportedError
from tflgpu.graph.layout import Shape
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.model.text import printable
from tflgpu.runtime.device_memory import DeviceArray, DeviceMemory, Value, device_memory, is_device_array
from tflgpu.runtime.foreign_arrays import HasArray, HasDLPack, host_array, is_array, writable_array
from tflgpu.runtime.opencl.session import Session

Given = ArrayLike | DeviceArray | HasDLPack

Inputs = Mapping[str, Given] | Sequence[Given] | NDArray[Any] | DeviceArray | HasDLPack | HasArray | memoryview

Outputs = Mapping[str, DeviceArray | NDArray[Any] | HasDLPack]


class InputCheck:
    """Checks a model's inputs. What does not change between runs is looked up once, here."""

    def __init__(self, infos: Sequence[TensorInfo], session: Session) -> None:
        self._session = session
        self._names = [info.name for info in infos]
        self._name_set = set(self._names)
        self._wanted = [(info, _element_type(info), info.shape) for info in infos]
        # The inputs in order, if all are arrays of numpy with the file's element types and shapes; else None. Most
        # calls of small models end with this check, so it makes few operations.
        wanted = {info.name: (dtype, shape) for info, dtype, shape in self._wanted}
        self.fitting = _fitting_alone(wanted) if len(wanted) == 1 else _fitting_together(wanted)

    def values(self, inputs: Inputs) -> list[Value]:
        """Return inputs by name, in order, or a single one -> values in order.

        Raises ValueError if one does not fit, TypeError for what holds no inputs.
        """
        return [
            # An array that fits takes no call.
            given
            if type(given) is np.ndarray and given.dtype == dtype and given.shape == shape
            else self._value(info, dtype, given)
            # Both have equal lengths; `strict` would take as long as two arrays.
            for (info, dtype, shape), given in zip(self._wanted, self._ordered(inputs))  # noqa: B905
        ]

    def _ordered(self, inputs: Inputs) -> Sequence[Given]:
        names = self._names
        # The common cases come first, with as few operations as possible: a GPU has nothing to do in the meantime.
        if type(inputs) is dict and inputs.keys() == self._name_set:
            return [inputs[name] for name in names]
        if type(inputs) is not list and (isinstance(inputs, np.ndarray) or is_device_array(inputs)):
            inputs = [inputs]
        if type(inputs) is list and len(inputs) == len(names):
            return inputs
        if type(inputs) is not list and is_array(inputs):
            return self._ordered([inputs])
        if isinstance(inputs, Mapping):
            if inputs.keys() != self._name_set:  # perhaps as the file has them
                inputs = {printable(str(name)): given for name, given in inputs.items()}
            if inputs.keys() != self._name_set:
                raise ValueError(f"inputs named {sorted(map(str, inputs))} were given; the model has {names}")
            return [inputs[name] for name in names]
        if not isinstance(inputs, Collection) or isinstance(inputs, Set | str | bytes):
            raise TypeError(
                f"inputs is of type {type(inputs).__name__}; a dictionary of arrays by name, a list of arrays or one "
                "array was expected; an array has __dlpack__, __array__ or the buffer protocol, or is on the device"
            )
        if len(inputs) != len(names):
            raise ValueError(f"{len(inputs)} inputs were given; the model has {len(names)}: {names}")
        return cast(Sequence[Given], inputs)

    def _value(self, info: TensorInfo, dtype: np.dtype[Any], given: Given) -> Value:
        if is_device_array(given):
            memory = device_memory("input", info, given, self._session)
            _check_shape("input", info, memory.shape, info.free_axes)
            return memory
        array = host_array(f"input {info.name!r}", given)
        _check_shape("input", info, array.shape, info.free_axes)
        if array.dtype != dtype and not (array.dtype.kind == "f" and dtype == np.float32):
            raise ValueError(f"input {info.name!r} has element type {array.dtype}; {dtype} was expected")
        return np.asarray(array, dtype)


Wanted = Mapping[str, tuple[np.dtype[Any], Shape]]  # of inputs by name, in order

Fitting = Callable[[Inputs], list[Array] | None]


def _fitting_alone(wanted: Wanted) -> Fitting:
    """Return the check of the only input."""
    ((name, (dtype, shape)),) = wanted.items()

    def fitting(inputs: Inputs) -> list[Array] | None:
        given: Any = inputs
        if type(inputs) is list:
            given = inputs[0] if len(inputs) == 1 else None
        elif type(inputs) is dict:
            given = inputs.get(name) if len(inputs) == 1 else None
        return [given] if type(given) is np.ndarray and given.dtype is dtype and given.shape == shape else None

    return fitting


def _fitting_together(wanted: Wanted) -> Fitting:
    """Return the check of several inputs, or of none."""
    names, kinds = list(wanted), list(wanted.values())

    def fitting(inputs: Inputs) -> list[Array] | None:
        ordered: list[Any]
        if type(inputs) is dict:
            ordered = [*map(inputs.get, names)]
        elif type(inputs) is list:
            ordered = inputs.copy()
        else:
            return None
        if len(inputs) != len(names):
            return None
        for (dtype, shape), given in zip(kinds, ordered):  # noqa: B905 - of equal length
            if type(given) is not np.ndarray or given.dtype is not dtype or given.shape != shape:
                return None
        return ordered

    return fitting


def check_outputs(
    given: Outputs, infos: Sequence[TensorInfo], session: Session
) -> tuple[dict[int, DeviceMemory], dict[str, NDArray[Any]]]:
    """Return a caller's arrays for outputs.

    Args:
        given: Arrays by the names of outputs.
        infos: The model's outputs.
        session: The model's.

    Returns:
        Memory on the device by number of output, and arrays of the host by name.

    Raises:
        ValueError: An array does not fit, or there is no output of its name.
        TypeError: It is no dictionary of arrays.
    """
    if type(given) is not dict and not isinstance(given, Mapping):  # the check of a Mapping takes longer
        raise TypeError(f"outputs is of type {type(given).__name__}; a dictionary of arrays by name was expected")
    on_device, on_host = {}, {}
    for number, info in enumerate(infos):
        if info.name in given:
            array = given[info.name]
            if is_device_array(array):
                on_device[number] = memory = device_memory("output", info, array, session)
                _check_shape("output", info, memory.shape)
            else:
                on_host[info.name] = _host_output(info, array)
    if len(on_device) + len(on_host) != len(given):
        names = [info.name for info in infos]
        raise ValueError(f"outputs named {sorted(map(str, given))} were given; the model has {names}")
    return on_device, on_host


def _host_output(info: TensorInfo, given: Any) -> NDArray[Any]:
    what = f"output {info.name!r}"
    array = writable_array(what, given)
    _check_shape("output", info, array.shape)
    if array.dtype != np.dtype(info.dtype):
        raise ValueError(f"{what} has element type {array.dtype}; {info.dtype} was expected")
    return array


def _check_shape(role: str, info: TensorInfo, shape: Shape, free_axes: Sequence[int] = ()) -> None:
    fits = shape == info.shape or (
        len(shape) == len(info.shape)
        and all(
            given == wanted or (axis in free_axes and given > 0)
            for axis, (given, wanted) in enumerate(zip(shape, info.shape, strict=True))
        )
    )
    if not fits:
        expected = ["any" if axis in free_axes else str(d) for axis, d in enumerate(info.shape)]
        raise ValueError(f"{role} {info.name!r} has shape {list(shape)}; [{', '.join(expected)}] was expected")


def _element_type(info: TensorInfo) -> np.dtype[Any]:
    """Raise UnsupportedError for strings, handles and numbers that fill no byte."""
    try:
        return np.dtype(info.dtype)
    except TypeError:
        reason = f"input {info.name!r} has element type {info.dtype}, of which there are no arrays"
        raise UnsupportedError((reason,)) from None
