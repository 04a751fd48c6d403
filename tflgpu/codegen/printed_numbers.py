"""Sizes and floats that templates print, and that functions of the same text may take as arguments.

A size (:data:`tflgpu.graph.layout.Size`) of a template's parameters, and what a template computes of it, prints itself
between two marks, as every float of the parameters does. A rendered body is divided at these marks, so that nothing
looks for numbers in C. All other numbers are text: those of unrolled turns, the lengths of arrays. Where C wants a
constant in place of a size, the template says ``| constant`` or prints it by ``%d``. It says ``| turns`` in the heads
of loops, whose turns a GPU's compiler is to know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isinf, isnan
from typing import Any

from tflgpu.kernels.kernel import Parameters, Storage

MARK, TURNS = "\ue000", "\ue001"  # of the private use area, which no source has

LARGEST_INT = 2**31 - 1  # of a device; the literal of its negative neighbour has another type


class Number(int):
    """An integer of a kernel's parameters, or one that a template has computed of it."""

    def __str__(self) -> str:
        digits = int.__repr__(self)
        return f"{MARK}{digits}{MARK}" if -LARGEST_INT <= self <= LARGEST_INT else digits

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec) if spec else str(self)


def _closed(name: str) -> Callable[..., Any]:
    """Return an operation of integers whose result is a number of the parameters again."""
    operation = getattr(int, name)

    def of_numbers(self: int, *others: Any) -> Any:
        result = operation(self, *others)
        return Number(result) if type(result) is int else result

    return of_numbers


for _name in ("add", "sub", "mul", "floordiv", "mod", "pow"):
    for _operation in (f"__{_name}__", f"__r{_name}__"):
        setattr(Number, _operation, _closed(_operation))
for _operation in ("__neg__", "__pos__", "__abs__"):
    setattr(Number, _operation, _closed(_operation))


class Seen:
    """A dataclass of the parameters as templates see it: sizes in it are :class:`Number`."""

    def __init__(self, value: Any) -> None:
        self.__value, self.__is_storage, self.__sizes = value, isinstance(value, Storage), _sizes(value.__class__)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__value, name)
        found = self.__dict__[name] = seen(found, is_size=self.__is_storage or name in self.__sizes)
        return found


@cache
def _sizes(kind: Any) -> frozenset[str]:
    """Return the names of the sizes of a dataclass or a named tuple."""
    types = {field.name: field.type for field in fields(kind)} if is_dataclass(kind) else kind.__annotations__
    return frozenset(name for name, declared in types.items() if "Size" in str(declared))


def seen(value: Any, *, is_size: bool = False) -> Any:
    """Return a value of a kernel's parameters as templates see it.

    Args:
        value: Also a tuple, a list, a mapping or a dataclass, whose values are seen so, too.
        is_size: Whether an integer is a size, in which kernels of the same text may differ.
    """
    if is_size and type(value) is int:
        return Number(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return type(value)(*(seen(item, is_size=name in _sizes(type(value))) for name, item in value._asdict().items()))
    if isinstance(value, tuple | list):
        return type(value)(seen(item, is_size=is_size) for item in value)
    if isinstance(value, Mapping):
        return {name: seen(item) for name, item in value.items()}
    return Seen(value) if is_dataclass(value) else value


def seen_fields(parameters: Parameters) -> dict[str, Any]:
    """Return what a template sees of its parameters, by name.

    Args:
        parameters: The fields of which the type is Size are sizes.
    """
    view = Seen(parameters)

    def with_literals(value: Any) -> Any:
        return tuple(map(literal, value)) if type(value) is tuple else literal(value)

    return {field.name: with_literals(getattr(view, field.name)) for field in fields(parameters)}


def literal(value: Any) -> Any:
    """Return a value as C, so that no template can forget a suffix.

    Args:
        value: A float becomes a literal of type float, an integer an expression; anything else stays as it is.
    """
    if isinstance(value, float):
        if isnan(value):
            return "NAN"
        if isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return f"{MARK}{value!r}f{MARK}"
    if isinstance(value, int) and value == -(2**63):
        return "LONG_MIN"  # C has no literal for it
    return value


def value_of(literal_or_float: str | float) -> float:
    """Return the number that a literal stands for.

    Args:
        literal_or_float: Made by :func:`literal`, or a number, which is its own.
    """
    return float(plain(literal_or_float).removesuffix("f")) if isinstance(literal_or_float, str) else literal_or_float


def constant(printed: Any) -> Any:
    """Return a number that prints itself without marks, or text that has none: the filter ``constant``.

    Args:
        printed: A number, or text that has numbers.
    """
    return int(printed) if isinstance(printed, int) else plain(printed)


def plain(printed: object) -> str:
    """Return what is printed, without marks.

    Args:
        printed: A number, or text that has numbers.
    """
    return str(printed).replace(TURNS, "").replace(MARK, "")


def turns(printed: object) -> str:
    """Return what is printed in the head of a loop, whose turns a GPU's compiler knows: the filter ``turns``.

    Args:
        printed: A number, or text that has numbers.
    """
    pieces = str(printed).replace(TURNS, "").split(MARK)
    return MARK.join(f"{TURNS}{piece}" if i % 2 else piece for i, piece in enumerate(pieces))
