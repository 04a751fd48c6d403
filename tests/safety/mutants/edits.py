"""Edits of a model's fields, in the terms of the schema: ``subgraphs[0].operators[1].inputs = [0, -1]``.

An edit is plain data, so that a damaged model has a name: the original and the edits that were made to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

Value = int | float | bool | str | None | list[Any] | bytes

UNIONS = ("builtinOptions", "builtinOptions2")


class CannotWriteError(Exception):
    """The schema has no room for an edit's value, for example a negative number in an unsigned field."""


@dataclass(frozen=True)
class Order:
    """A list of the same elements in another order; those that are left out are gone, those named twice come twice."""

    places: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A table of the schema with the default of every field."""

    name: str


@dataclass(frozen=True)
class Patch:
    """A constant's bytes with some replaced, from ``begin`` on."""

    begin: int
    data: bytes


@dataclass(frozen=True)
class Length:
    """A constant cut to ``size`` bytes, or filled up with zeros."""

    size: int


@dataclass(frozen=True)
class Edit:
    """``path`` leads from the model to one field."""

    path: str
    value: Value | Order | Table | Patch | Length

    def __str__(self) -> str:
        return f"{self.path} = {self.value!r}"


def unpack(data: bytes) -> Any:
    """The object form of a model file."""
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))


def pack(model: Any) -> bytes:
    """The file of an object form. Raises CannotWriteError."""
    builder: Any = flatbuffers.Builder(1 << 12)
    try:
        builder.Finish(model.Pack(builder), b"TFL3")
    except Exception as error:  # the generated code checks nothing: what it raises depends on the field
        raise CannotWriteError(f"{type(error).__name__}: {error}") from error
    return bytes(builder.Output())


def edited(data: bytes, edits: Iterable[Edit]) -> bytes:
    """The model file ``data`` after ``edits``, one after another. Raises CannotWriteError."""
    model = unpack(data)
    for edit in edits:
        apply(model, edit)
    return pack(model)


def apply(model: Any, edit: Edit) -> None:
    """Change a model's object form. Raises CannotWriteError for a path that leads nowhere."""
    *way, name = re.findall(r"[A-Za-z]\w*|\d+", edit.path)
    place = model
    try:
        for step in way:
            place = place[int(step)] if step.isdigit() else getattr(place, step)
        value = _value(getattr(place, name), edit.value)
    except (AttributeError, IndexError, TypeError) as error:
        raise CannotWriteError(f"the model has no {edit.path}") from error
    setattr(place, name, value)
    if name in UNIONS:
        union = getattr(schema, name[0].upper() + name[1:])
        setattr(place, f"{name}Type", getattr(union, type(value).__name__.removesuffix("T"), 0))


def _value(old: Any, new: Value | Order | Table | Patch | Length) -> Any:
    match new:
        case Order(places):
            return [old[i] for i in places]
        case Table(name):
            return getattr(schema, f"{name}T")()
        case Patch(begin, data):
            return np.frombuffer(b"".join((old[:begin].tobytes(), data, old[begin + len(data) :].tobytes())), np.uint8)
        case Length(size):
            return np.frombuffer(old.tobytes()[:size].ljust(size, b"\0"), np.uint8)
        case bytes():
            return np.frombuffer(new, np.uint8)
    return new
