"""Arguments of :meth:`tflgpu.CompiledModel.run`: other libraries' arrays, checks, and calls that ask for the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from operator import is_
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeGuard, cast

import numpy as np
import pyopencl as cl
from numpy.typing import ArrayLike, NDArray

from tflgpu.artifact.executable import Array
from tflgpu.errors import UnsupportedError
from tflgpu.graph.layout import Shape
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.model.text import printable
from tflgpu.runtime.device_memory import DeviceArray, DeviceMemory, Value, device_memory, is_device_array
from tflgpu.runtime.opencl.session import Session


class HasDLPack(Protocol):
    """Protocol of an object that exports its memory by DLPack, such as a tensor of PyTorch."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class HasArray(Protocol):
    """Protocol of an object that numpy makes an array of, such as a tensor of TensorFlow."""

    def __array__(self) -> Any: ...


PROTOCOLS = ("__dlpack__", "__array__", "__array_interface__")

# Types that have no array, or that are several.
NO_ARRAY = (list, tuple, Mapping, Set, str, bytes)

# The host's memory among the types of devices of DLPack: of the CPU, pinned by CUDA and by ROCm, and managed by CUDA.
ON_HOST = (1, 3, 11, 13)
DEVICES = {2: "a CUDA GPU", 4: "an OpenCL device", 7: "a Vulkan device", 8: "a Metal GPU", 10: "a ROCm GPU"}
DEVICES |= {14: "a oneAPI device"}

# Errors that libraries raise for memory, element types and gradients that they do not export.
REFUSALS = (AttributeError, BufferError, NotImplementedError, RuntimeError, TypeError, ValueError)


def is_array(value: object) -> TypeGuard[HasDLPack]:
    """Whether a value is one array, not a sequence of several or a mapping.

    Args:
        value: A caller's value; it may be anything.
    """
    if isinstance(value, np.ndarray):
        return True
    if isinstance(value, NO_ARRAY):
        return False
    return any(hasattr(type(value), protocol) for protocol in PROTOCOLS) or _is_buffer(value)


def _is_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True


def host_array(what: str, given: Any) -> NDArray[Any]:
    """Return an array of the host with the elements of another one, in the same memory where that is possible.

    Args:
        what: The array's name, for messages.
        given: An array of numpy or of another library.

    Raises:
        ValueError: It is in the memory of another device, or is no array.
    """
    if isinstance(given, np.ndarray):
        return given
    if hasattr(type(given), "__dlpack__"):
        _require_host(what, given)
        try:
            return np.from_dlpack(given)
        except REFUSALS:  # such as bool for an old numpy; perhaps it has another protocol
            pass
    try:
        return np.asarray(given)
    except REFUSALS as error:
        raise ValueError(f"{what} is no array: {error}") from error


def _require_host(what: str, given: HasDLPack) -> None:
    device_type = getattr(given, "__dlpack_device__", lambda: (1, 0))()[0]
    if int(device_type) not in ON_HOST:
        place = DEVICES.get(int(device_type), f"a device of DLPack's type {int(device_type)}")
        raise ValueError(
            f"{what} is in the memory of {place}; copy it to the host, or give a pyopencl array or buffer of "
            "`CompiledModel.queue`"
        )


def writable_array(what: str, given: Any) -> NDArray[Any]:
    """Return a caller's array of the host as one of numpy in the same memory, to be written.

    Args:
        what: The array's name, for messages.
        given: An array of numpy or of another library.

    Raises:
        TypeError: It is no array.
        ValueError: Its memory cannot be written from here.
    """
    if not is_array(given):
        raise TypeError(f"{what} is a {type(given).__name__}; an array was expected: of pyopencl, numpy or PyTorch")
    view = host_array(what, given)
    if not isinstance(given, np.ndarray):
        if not hasattr(type(given), "__dlpack__") and not _is_buffer(given):
            raise ValueError(f"{what} is a {type(given).__name__}, which may give its elements as a copy")
        if not view.flags.writeable:
            view = _by_array(given, view)
    if not view.flags.writeable:
        raise ValueError(f"{what} is a {type(given).__name__} whose memory is read-only")
    return view


def _by_array(given: Any, view: NDArray[Any]) -> NDArray[Any]:
    """Return what ``__array__`` gives, if it is the memory of ``view``: numpy takes that of DLPack to be read-only."""
    try:
        other = np.asarray(given)
    except REFUSALS:
        return view
    same = other.__array_interface__["data"][0] == view.__array_interface__["data"][0]
    return other if same and other.strides == view.strides else view


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
