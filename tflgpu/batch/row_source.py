"""Rows that were read for a model, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tflgpu.model.tensor_info import TensorInfo


@dataclass(frozen=True)
class Rows:
    """Rows that were read together.

    kept: the columns that stay beside the results, of all rows. inputs: by names of inputs, those of the rows that are
    good, in their order. errors: by the place of a row in ``kept``, why it is not good; each names its file and row.
    """

    kept: pa.Table
    inputs: Mapping[str, NDArray[Any]]
    errors: Mapping[int, str]

    @property
    def good(self) -> list[int]:
        """The places of the rows that are good."""
        return [place for place in range(len(self.kept)) if place not in self.errors]


class RowSource(Protocol):
    """Numbered rows in files, which any process can read that has the files under the same paths."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that have the rows."""

    @property
    def count(self) -> int:
        """The number of rows."""

    def read(self, start: int, stop: int, size: int) -> Iterator[Rows]:
        """Yield rows in order.

        Args:
            start: The first row.
            stop: The row after the last one.
            size: Most rows that come together.
        """


def fitted(info: TensorInfo, row: NDArray[Any]) -> NDArray[Any]:
    """Return a row in the shape that the input's rows have.

    Args:
        info: The input; its first axis counts rows.
        row: One row. It may be flat, as in Parquet.

    Raises:
        ValueError: It has another shape.
    """
    expected = info.shape[1:]
    if row.shape == (prod(expected),):
        row = row.reshape(expected)
    free = {axis - 1 for axis in info.free_axes}
    if row.ndim != len(expected) or any(
        size != given for axis, (size, given) in enumerate(zip(expected, row.shape, strict=True)) if axis not in free
    ):
        raise ValueError(f"its shape is {list(row.shape)}; {list(expected)} was expected")
    return row


def stacked(info: TensorInfo, rows: list[NDArray[Any]]) -> NDArray[Any]:
    """Return rows along a new first axis.

    Args:
        info: The input, for the shape and the type of no rows.
        rows: Arrays of one shape; there may be none.
    """
    return np.stack(rows) if rows else np.empty((0, *info.shape[1:]), info.dtype)
