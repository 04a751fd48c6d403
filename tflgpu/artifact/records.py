"""Dataclasses as JSON: fields by name, tuples as lists. Arrays, bytes and long texts are beside the JSON, by number.

The annotations of a dataclass's fields say how to read each field back, so this module knows no class in particular.
Unlike pickle, reading a file cannot run code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

Blob = NDArray[np.uint8]

# Characters. A text of this length or more is kept beside the JSON, which would have to escape much of source code.
LONG = 1000


def encode(value: object, blobs: list[Blob]) -> Any:
    """Return a value as plain data.

    Args:
        value: A dataclass, or anything that fields of one may have.
        blobs: Gets arrays, bytes and long texts, in whose places are their numbers.
    """
    if is_dataclass(value) and not isinstance(value, type):
        record = {f.name: encode(getattr(value, f.name), blobs) for f in fields(value)}
        return {"is": type(value).__name__} | record
    if isinstance(value, tuple | list):
        return [encode(v, blobs) for v in value]
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value)
        blobs.append(value.reshape(-1).view(np.uint8))
        return {"blob": len(blobs) - 1, "dtype": value.dtype.name, "shape": list(value.shape)}
    if isinstance(value, bytes):
        blobs.append(np.frombuffer(value, np.uint8))
        return {"blob": len(blobs) - 1}
    if isinstance(value, str) and len(value) >= LONG:
        blobs.append(np.frombuffer(value.encode(), np.uint8))
        return {"blob": len(blobs) - 1}
    if not (value is None or isinstance(value, str | int | float)):
        raise TypeError(f"{type(value).__name__} has no place in a record")
    return value


def decode(kind: type[T], data: Any, blobs: Sequence[Blob]) -> T:
    """Return the value that :func:`encode` wrote.

    Args:
        kind: The value's type.
        data: The plain data.
        blobs: Arrays of the value are views of these.

    Raises:
        KeyError: A field is missing. Like the other errors: :func:`encode` does not write this for the type.
        TypeError: A field has another type.
        ValueError: A field has a value that is not allowed.
        IndexError: A blob is missing.
    """
    value: T = _decode(kind, data, dict(enumerate(blobs)))
    return value


def _decode(kind: Any, data: Any, blobs: dict[int, Blob]) -> Any:
    """Return the value, whose blobs are taken out: one that could be named often would become many copies."""
    origin, arguments = get_origin(kind), get_args(kind)
    if hasattr(origin, "__value__"):  # from Python 3.12 on, NDArray is an alias object
        origin = get_origin(origin.__value__)
    if isinstance(kind, type) and is_dataclass(kind):
        types = _field_types(kind)
        return kind(**{name: _decode(each, data[name], blobs) for name, each in types.items()})
    if origin is tuple:
        if not isinstance(data, list):
            raise TypeError(f"{data!r} is no list")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_decode(arguments[0], v, blobs) for v in data)
        return tuple(_decode(each, v, blobs) for each, v in zip(arguments, data, strict=True))
    if origin in (Union, UnionType):
        return None if data is None and NoneType in arguments else _decode(_member(arguments, data), data, blobs)
    if origin is Literal:
        if data not in arguments:
            raise ValueError(f"{data!r} is none of {arguments}")
        return data
    if origin is np.ndarray:
        return blobs.pop(data["blob"]).view(data["dtype"]).reshape(data["shape"])
    if kind is bytes:
        return blobs.pop(data["blob"]).tobytes()
    if kind is str and isinstance(data, Mapping):
        return blobs.pop(data["blob"]).tobytes().decode()
    if not isinstance(data, kind):
        raise TypeError(f"{data!r} is no {kind.__name__}")
    return data


def _member(arguments: Sequence[Any], data: Any) -> Any:
    """Return the member of a union that ``data`` was written for: a dataclass by its name, or the only other type."""
    candidates = [a for a in arguments if a is not NoneType]
    if isinstance(data, Mapping) and "is" in data:
        candidates = [a for a in candidates if getattr(a, "__name__", "") == data["is"]]
    (member,) = candidates
    return member


@cache
def _field_types(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}
