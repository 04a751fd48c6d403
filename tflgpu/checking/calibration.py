"""Inputs of a caller's, as an immutable value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
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
