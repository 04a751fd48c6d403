"""Rows that lie in files: Parquet, images, and numpy's arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tflgpu.batch.arrow_columns import arrow_column
from tflgpu.inputs import InputReader, input_files, naming
from tflgpu.inputs.input_folder import IMAGES
from tflgpu.model.tensor_info import TensorInfo

ARRAYS, TABLES = ".npy", ".parquet"
SUFFIXES = (ARRAYS, TABLES, *IMAGES)


@dataclass(frozen=True)
class ParquetRows:
    """Files with a column for each input."""

    paths: tuple[str, ...]

    @cached_property
    def _groups(self) -> list[int]:
        return [count for path in self.paths for count in _row_groups(path)]

    @property
    def count(self) -> int:
        """How many rows there are in all files."""
        return sum(self._groups)

    def batches(self, size: int) -> int:
        """In how many tables of at most ``size`` rows they come."""
        return sum(ceil(count / size) for count in self._groups)

    def tables(self, size: int) -> Iterator[pa.Table]:
        """Yield the rows, at most ``size`` of them in a table."""
        for path in self.paths:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    for batch in file.iter_batches(size, row_groups=[group]):
                        yield pa.Table.from_batches([batch])


@dataclass(frozen=True)
class ListedRows:
    """Images, or rows of arrays, for the only input of a model.

    listing: what tells a row from others, and stays beside its result: ``path``, and ``row`` in an array.
    """

    listing: pa.Table
    reader: RowReader

    @property
    def count(self) -> int:
        """How many rows the listing has."""
        return len(self.listing)

    def batches(self, size: int) -> int:
        """In how many tables of at most ``size`` rows they come."""
        return ceil(len(self.listing) / size)

    def tables(self, size: int) -> Iterator[pa.Table]:
        """Yield the rows that the reader makes of the listing, at most ``size`` of them in a table."""
        for start in range(0, len(self.listing), size):
            yield self.reader(self.listing.slice(start, size))


@dataclass(frozen=True)
class RowReader:
    """Adds the column of an input to a listing. In other processes too, if they have the files under the same paths."""

    info: TensorInfo  # of the input with one row
    images: InputReader

    def __call__(self, listing: pa.Table) -> pa.Table:
        """Raise OSError, and ValueError, which names the file, for what does not fit the input."""
        if "row" in listing.column_names:
            rows = self._rows_of_arrays(listing["path"].to_pylist(), listing["row"].to_pylist())
        else:
            rows = [self.images.read([Path(path)])[0][0] for path in listing["path"].to_pylist()]
        return listing.append_column(self.info.name, arrow_column(np.stack(rows)))

    def _rows_of_arrays(self, paths: Sequence[str], places: Sequence[int]) -> list[NDArray[Any]]:
        rows: list[NDArray[Any]] = []
        for path, each in groupby(zip(paths, places, strict=True), key=lambda pair: pair[0]):
            array = _rows_of(Path(path), self.info)
            rows += [array[place] for _, place in each]
        return rows


def open_rows(
    paths: Sequence[Path], model: bytes, inputs: Sequence[TensorInfo], mean: float | None, std: float | None
) -> ParquetRows | ListedRows:
    """Return the rows of files, and of folders in the alphabetical order of their files' names.

    inputs: of the model. mean, std: of :class:`tflgpu.inputs.InputReader`. Raises OSError for what is not there,
    ValueError for files of several kinds, or of one that does not fit the model.
    """
    files = [file.absolute() for path in paths for file in (input_files(path, SUFFIXES) if path.is_dir() else [path])]
    kinds = {_kind(file) for file in files}
    if len(kinds) > 1:
        raise ValueError(f"the inputs end in {' and '.join(sorted(kinds))}; give those of one kind")
    names = [str(file) for file in files]
    if kinds == {TABLES}:
        return ParquetRows(tuple(names))
    if len(inputs) != 1:
        given = ", ".join(repr(info.name) for info in inputs)
        raise ValueError(f"the model has the inputs {given}; give Parquet, with a column for each")
    one_row = replace(inputs[0], shape=(1, *inputs[0].shape[1:]))
    reader = RowReader(one_row, InputReader(model, [one_row], mean=mean, std=std))
    if kinds != {ARRAYS}:
        return ListedRows(pa.table({"path": names}), reader)
    counts = [len(_rows_of(file, one_row)) for file in files]
    listing = {"path": np.repeat(np.array(names, object), counts), "row": np.concatenate([*map(np.arange, counts)])}
    return ListedRows(pa.table(listing), reader)


def _kind(file: Path) -> str:
    """Raise OSError for a file that is not there, now and not in a worker, and ValueError for one of another kind."""
    file.stat()
    suffix = file.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{file} ends in none of {', '.join(SUFFIXES)}")
    return "an image's suffix" if suffix in IMAGES else suffix


def written_rows(folder: Path) -> int:
    """Return the rows of Parquet in a folder, without those of files that are not finished."""
    count = 0
    for path in folder.glob(f"*{TABLES}"):
        with suppress(pa.ArrowInvalid, OSError):
            count += sum(_row_groups(path))
    return count


def _row_groups(path: str | Path) -> list[int]:
    """Return the number of rows in each."""
    metadata = pq.read_metadata(path)
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def _rows_of(path: Path, info: TensorInfo) -> NDArray[Any]:
    """Return the rows of an array, which stay in the file until they are used; an array may also be a single row."""
    row = info.shape[1:]
    with naming([path]):
        array = np.lib.format.open_memmap(path, mode="r")
        if array.dtype != info.dtype and not (array.dtype.kind == "f" and info.dtype == "float32"):
            raise ValueError(f"its element type is {array.dtype}; {info.dtype} was expected")
        if array.shape == row:
            return array[None]
        if array.shape[1:] != row:
            raise ValueError(f"its shape is {list(array.shape)}; rows of {list(row)} were expected")
    return array
