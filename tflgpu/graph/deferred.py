"""Elements of large constants that are computed where they are read, and not kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from numpy.typing import NDArray

Array = NDArray[Any]


class Deferred:
    """Elements that ``compute`` gives, anew if the array of the last time is freed.

    So the weights of a quantized model are never in memory as floats all at once: a layer has them while it is planned.
    """

    def __init__(self, compute: Callable[[], Array], size: int) -> None:
        """size: bytes of the array."""
        self.nbytes = size
        self._compute = compute
        self._last: ref[Array] | None = None

    def array(self) -> Array:
        """Return the elements, which nothing may change."""
        array = None if self._last is None else self._last()
        if array is None:
            array = self._compute()
            self._last = ref(array)
        return array


class Elements:
    """The field ``data`` of a tensor of the graph: reading it gives an array, also where :class:`Deferred` was set."""

    def __get__(self, tensor: object, owner: type) -> Array | None:
        stored = stored_elements(tensor)
        return stored.array() if isinstance(stored, Deferred) else stored

    def __set__(self, tensor: object, value: Array | Deferred | None) -> None:
        # A dataclass whose caller leaves the field out sets the default, which is this object.
        vars(tensor)["data"] = None if isinstance(value, Elements) else value


def stored_elements(tensor: object) -> Array | Deferred | None:
    """Return the field ``data`` as it was set, without computing elements that are deferred.

    Args:
        tensor: A :class:`tflgpu.graph.ir.Tensor`, or one of the file.
    """
    stored: Array | Deferred | None = vars(tensor)["data"]
    return stored
