"""A batch that runs in pieces of the rows that a compiled model takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class RowPieces:
    """Runs of a compiled model for another number of rows, until they have taken as long as compiling takes.

    From then on a program for these rows is worthwhile. So this takes at most twice the time that it would take if the
    future were known, and a batch that comes once, such as the last one of a data set, is not compiled for.
    """

    def __init__(self, run: Callable[[Sequence[Array]], dict[str, Array]], rows: int, seconds: float) -> None:
        """run: the compiled model. rows: that it takes. seconds: that compiling it took."""
        self._run, self._size, self._seconds_left = run, rows, seconds

    @property
    def is_worthwhile(self) -> bool:
        """Whether to compile would be slower."""
        return self._seconds_left > 0

    def run(self, inputs: Sequence[Array]) -> dict[str, Array]:
        """Run rows piece by piece, and return the outputs by name. The last piece is filled up with its last row.

        Args:
            inputs: Arrays whose first axis counts rows.
        """
        begun = perf_counter()
        rows, size = len(inputs[0]), self._size
        places = [np.minimum(np.arange(first, first + size), rows - 1) for first in range(0, rows, size)]
        results = [self._run([array[place] for array in inputs]) for place in places]
        joined = {name: np.concatenate([each[name] for each in results])[:rows] for name in results[0]}
        self._seconds_left -= perf_counter() - begun
        return joined
