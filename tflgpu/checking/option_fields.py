"""Checks of options: of an option's name and the value that a caller gave, the value that is kept.

Each raises TypeError or ValueError, which names the option and says what was expected.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from math import isfinite
from operator import index
from os import PathLike, fspath
from re import fullmatch
from reprlib import repr as shortened
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Inputs = tuple[Array, ...] | dict[str, Array]


class Calibration(Sequence[Inputs]):
    """Sets of inputs, each of arrays in order or by name. Copies: the caller can change what was given.

    Two are equal if their arrays are.
    """

    def __init__(self, given: Iterable[Any]) -> None:
        """given: of each set what ``run`` takes: one array, a list, or a dictionary by name."""
        self._sets = tuple(map(_copied, given))
        if not self._sets:
            raise ValueError("Options.numerics.calibration is empty; at least one set of inputs was expected")

    @cached_property
    def digest(self) -> str:
        """Digest of names, types, shapes and elements."""
        digest = blake2b(digest_size=16)
        for inputs in self._sets:
            named = inputs.items() if isinstance(inputs, dict) else enumerate(inputs)
            for name, array in named:
                digest.update(f"{name!r} {array.dtype.str} {array.shape} ".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
            digest.update(b"; ")
        return digest.hexdigest()

    @overload
    def __getitem__(self, index: int) -> Inputs: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Inputs]: ...
    def __getitem__(self, index: int | slice) -> Inputs | Sequence[Inputs]:
        return self._sets[index]

    def __len__(self) -> int:
        return len(self._sets)

    def __iter__(self) -> Iterator[Inputs]:
        return iter(self._sets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calibration) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Calibration of {len(self)} sets of inputs>"


def _copied(given: Any) -> Inputs:
    if isinstance(given, np.ndarray):
        return (given.copy(),)
    if isinstance(given, Mapping):
        return {str(name): np.array(each) for name, each in given.items()}
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise TypeError(f"Options.numerics.calibration has a {type(given).__name__} for inputs; arrays were expected")
    return tuple(map(np.array, given))


MAX_TIMEOUT = 86400.0  # seconds: a day

GREATEST_SIZE = 2**31 - 1  # of an axis: the file counts in 32 bits with a sign

GREATEST_TOKEN = 2**64 - 1


def _mistyped(name: str, value: object, expected: str) -> TypeError:
    return TypeError(f"Options.{name} is {shortened(value)}; {expected} was expected")


def whole_number(
    name: str, value: Any, least: int = 1, most: int = GREATEST_SIZE, expected: str = "a whole number"
) -> int:
    """Return an argument of a caller's as an int; numpy's are fine.

    Args:
        name: The argument's, for messages.
        value: The caller's.
        least: The smallest number that is allowed.
        most: The greatest number that is allowed.
        expected: What is expected, for messages.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is less or greater than allowed.
    """
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} is {shortened(value)}; {expected} was expected") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}; it must be from {least} to {most}")
    return number


@dataclass(frozen=True)
class WholeNumber:
    """The check of an option that is a whole number from ``least`` to ``most``."""

    least: int
    most: int

    def __call__(self, name: str, value: Any) -> int:
        """Return the value as an int; numpy's are fine."""
        return whole_number(f"Options.{name}", value, self.least, self.most)


def _each(name: str, value: Any, expected: str) -> tuple[Any, ...]:
    """Return the items of a sequence; a text alone is none."""
    if isinstance(value, str | bytes):
        raise TypeError(f"Options.{name} is one text; give a list of {expected}: [{shortened(value)}]")
    if not isinstance(value, Iterable):
        raise _mistyped(name, value, f"a list of {expected}")
    return tuple(value)


def check_switch(name: str, value: Any) -> bool:
    """Return True or False.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
    """
    if not isinstance(value, Hashable) or value not in (True, False):
        raise _mistyped(name, value, "True or False")
    return bool(value)


def check_text(name: str, value: Any) -> str:
    """Return a text.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
    """
    if not isinstance(value, str):
        raise _mistyped(name, value, "a text")
    return value


def check_device(name: str, value: Any) -> str | int:
    """Return an index of :func:`tflgpu.devices`, or a type or a part of a name.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: The index is negative.
    """
    expected = "an index of tflgpu.devices() or a part of a device's name"
    return value if isinstance(value, str) else whole_number(f"Options.{name}", value, 0, expected=expected)


def check_seconds(name: str, value: Any) -> float | None:
    """Return a number of seconds as a float, or None.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: It is not positive, or too large.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise _mistyped(name, value, "a number of seconds, or None") from None
    if not 0 < seconds <= MAX_TIMEOUT:
        raise ValueError(f"Options.{name} is {seconds:g}; it must be more than 0 and at most {MAX_TIMEOUT:g} seconds")
    return seconds


def check_outputs(name: str, value: Any) -> tuple[str | int, ...]:
    """Return names or indices of tensors as a tuple.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: There is none, or an index is negative.
    """
    expected = "a tensor's name or index"
    tensors = tuple(
        o if isinstance(o, str) else whole_number(f"Options.{name}", o, 0, expected=expected)
        for o in _each(name, value, "tensor names")
    )
    if not tensors:
        raise ValueError(f"Options.{name} is empty; at least one tensor must be named")
    return tensors


def check_operators(name: str, value: Any) -> tuple[str | int | range, ...]:
    """Return codes, indices or ranges of indices of operators as a tuple.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: An index is negative.
    """
    operators = _each(name, value, "operators")
    expected = "an operator's code or index, or a range of indices"
    return tuple(
        o if isinstance(o, str | range) else whole_number(f"Options.{name}", o, 0, expected=expected) for o in operators
    )


def _by_input(name: str, value: Any, expected: str) -> Iterator[tuple[str, Any]]:
    """Names of inputs, and what is given for each."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _mistyped(name, value, f"a dictionary from names of inputs to {expected}")
    yield from value.items()


def check_shapes(name: str, value: Any) -> dict[str, tuple[int, ...]]:
    """Return shapes of inputs by name.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: A size is less than 1.
    """

    def shape(key: str, given: Any) -> tuple[int, ...]:
        place = f"{name}[{key!r}]"
        return tuple(whole_number(f"Options.{place}", size) for size in _each(place, given, "sizes"))

    return {key: shape(key, given) for key, given in _by_input(name, value, "shapes")}


def check_scalings(name: str, value: Any) -> dict[str, tuple[float, float]]:
    """Return ``(mean, std)`` of inputs by name.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: A number is not finite, or std is 0.
    """
    scalings: dict[str, tuple[float, float]] = {}
    for key, pair in _by_input(name, value, "(mean, std)"):
        try:
            mean, std = map(float, pair)
        except (TypeError, ValueError):
            raise _mistyped(f"{name}[{key!r}]", pair, "(mean, std)") from None
        if not (isfinite(mean) and isfinite(std) and std):
            raise ValueError(f"Options.{name} has mean {mean:g}, std {std:g} for {key!r}; std must not be 0")
        scalings[key] = mean, std
    return scalings


def check_bound(name: str, value: Any) -> dict[str, str]:
    """Return inputs by output.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: Two outputs are bound to the same input.
    """
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise _mistyped(name, value, "{output: input}")
    if len(set(value.values())) < len(value):
        raise ValueError(f"Options.{name} binds two outputs to the same input: {dict(value)}")
    return dict(value)


def check_places(name: str, value: Any) -> str | PathLike[str] | tuple[str | PathLike[str], ...]:
    """Return a path, or a tuple of several.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: A path is empty.
    """

    def place(given: Any) -> str | PathLike[str]:
        if not isinstance(given, str | PathLike):
            raise _mistyped(name, given, "a path")
        if not fspath(given):
            raise ValueError(f"Options.{name} is an empty path; '.' is the working directory")
        return given

    return place(value) if isinstance(value, str | PathLike) else tuple(map(place, _each(name, value, "paths")))


def check_hexadecimal(name: str, value: Any) -> str:
    """Return 64 hexadecimal digits in lower case.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        ValueError: It is anything else.
    """
    if not isinstance(value, str) or not fullmatch("[0-9a-fA-F]{64}", value):
        raise ValueError(f"Options.{name} is {shortened(value)}; 64 hexadecimal digits were expected")
    return value.lower()


def check_digests(name: str, value: Any) -> tuple[str, ...]:
    """Return 64 hexadecimal digits each, as a tuple.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: A digest is anything else.
    """
    digests = [value] if isinstance(value, str) else _each(name, value, "digests")
    return tuple(check_hexadecimal(name, digest) for digest in digests)


def check_tolerance(name: str, value: Any) -> float:
    """Return a part of an output's range as a float.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: It is not above 0, or above 1.
    """
    try:
        tolerance = float(value)
    except (TypeError, ValueError):
        raise _mistyped(name, value, "a part of an output's range, such as 0.01,") from None
    if not 0 < tolerance <= 1:
        raise ValueError(f"Options.{name} is {tolerance:g}; it must be more than 0 and at most 1, all of the range")
    return tolerance


def check_calibration(name: str, value: Any) -> Calibration:
    """Return sets of inputs.

    Args:
        name: The option's, for messages.
        value: A caller's.

    Raises:
        TypeError: The value has another type.
        ValueError: There is no set.
    """
    if isinstance(value, Mapping) or not hasattr(value, "__len__"):
        raise _mistyped(name, value, "a list of inputs, each as `run` takes it,")
    return value if isinstance(value, Calibration) else Calibration(_each(name, value, "inputs"))
