"""Files, folders, patterns and lists of files -> the rows of a job, which may be tables in several formats."""

from __future__ import annotations

import csv
import glob
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tflgpu.batch.formats import arrow_column, check_numbers, numpy_column
from tflgpu.batch.row_source import (
    ARCHIVES,
    ARRAYS,
    ListedRows,
    Rows,
    RowSource,
    fitted,
    is_archive,
    list_arrays,
    list_images,
)
from tflgpu.inputs import InputReader, naming
from tflgpu.inputs.input_reader import IMAGES
from tflgpu.model.tensor_info import TensorInfo

PARQUET = ".parquet"

# Groups of rows in memory: one is read, and the next part of a job may need the same.
KEPT = 2

Problems = Mapping[int, str]  # of rows of a file that cannot be parsed


@dataclass(frozen=True)
class TableRows:
    """Files with a column for each input.

    inputs: of the model. columns: names of columns by names of inputs.
    """

    files: tuple[str, ...]
    inputs: tuple[TensorInfo, ...]
    columns: Mapping[str, str]

    @cached_property
    def _groups(self) -> list[tuple[str, int, int]]:
        """The groups of rows of all files, each with its number and its rows."""
        return [(file, number, count) for file in self.files for number, count in enumerate(group_rows(file))]

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(count for _, _, count in self._groups)

    def read(self, start: int, stop: int, size: int) -> Iterator[Rows]:
        """Yield rows in order.

        Args:
            start: The first row.
            stop: The row after the last one.
            size: Most rows that come together; they are of one file.

        Raises:
            ValueError: A column of an input is not there, or has no numbers.
        """
        ends = accumulate(count for _, _, count in self._groups)
        for (file, number, count), end in zip(self._groups, ends, strict=True):
            begin = end - count
            first, last = max(start, begin) - begin, min(stop, end) - begin
            for place in range(first, last, size):
                yield self._rows(file, number, place, min(size, last - place))

    def _rows(self, file: str, group: int, start: int, count: int) -> Rows:
        before = sum(group_rows(file)[:group])
        whole, problems = read_group(file, group)
        table = whole.slice(start, count)
        errors = {row - start: text for row, text in problems.items() if start <= row < start + count}
        given = dict[str, NDArray[Any]]()
        for info in self.inputs:
            name = self._column(info)
            if name not in table.column_names:
                there = sorted(table.column_names)
                raise ValueError(f"there is no column {name!r} for input {info.name!r}; there are {there}")
            given[info.name], wrong = rows_of_column(info, name, table[name])
            errors = {**wrong, **errors}
        good = [place for place in range(count) if place not in errors]
        kept = table.drop_columns([name for name in map(self._column, self.inputs) if name in table.column_names])
        return Rows(
            kept,
            {name: rows if len(good) == count else rows[good] for name, rows in given.items()},
            {place: f"{file}: row {before + start + place}: {errors[place]}" for place in sorted(errors)},
        )

    def _column(self, info: TensorInfo) -> str:
        return self.columns.get(info.name, info.name)


def rows_of_column(info: TensorInfo, name: str, column: pa.ChunkedArray) -> tuple[NDArray[Any], dict[int, str]]:
    """Return the rows of an input, and why some do not fit.

    Args:
        info: The input; its first axis counts rows.
        name: The column's name, for messages.
        column: Numbers, lists of numbers, or texts that name files.

    Returns:
        An array whose first axis counts rows, with zeros for rows that do not fit; and an error for each of these.

    Raises:
        ValueError: The column's type has no numbers.
    """
    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if not text:
        check_numbers(name, column.type)
        with suppress(ValueError):
            rows = numpy_column(name, column)
            if len(rows) == 0 or fitted(info, rows[0]).shape == rows.shape[1:]:
                return rows, {}
            return rows.reshape(len(rows), *fitted(info, rows[0]).shape), {}
    found, errors = dict[int, NDArray[Any]](), dict[int, str]()
    for place in range(len(column)):
        try:
            found[place] = fitted(info, _value(name, column, place, text))
        except ValueError as error:
            errors[place] = f"column {name!r}: {error}"
    shape, dtype = next(((row.shape, row.dtype) for row in found.values()), (info.shape[1:], np.dtype(info.dtype)))
    rows = np.zeros((len(column), *shape), dtype)
    for place, row in found.items():
        rows[place] = row
    return rows, errors


def _value(name: str, column: pa.ChunkedArray, place: int, text: bool) -> NDArray[Any]:
    """Return one row: numbers, lists of numbers, or such as JSON. Raises ValueError for what is none."""
    if not column[place].is_valid:
        raise ValueError("it is null")
    if not text:
        row: NDArray[Any] = numpy_column(name, column.slice(place, 1))[0]
        return row
    written = column[place].as_py()
    with suppress(ValueError):  # else it is shown as it is written
        written = json.loads(written)
    if written is None:
        raise ValueError("it is null")
    try:
        value = np.asarray(written)
    except ValueError:
        raise ValueError("its lists have different lengths") from None
    if value.dtype.kind not in "biuf":
        raise ValueError(f"{written!r} is no number, and no list of numbers")
    return value


def group_rows(file: str) -> tuple[int, ...]:
    """Return the number of rows in each group of a file; only Parquet has several groups.

    Args:
        file: Its path.
    """
    if file.lower().endswith(PARQUET):
        with naming([Path(file)]):
            metadata = pq.read_metadata(file)
        return tuple(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
    return (len(read_group(file, 0)[0]),)


@lru_cache(KEPT)
def read_group(file: str, number: int) -> tuple[pa.Table, Problems]:
    """Return the rows of a group, and which of them are damaged. The last few groups are kept.

    Args:
        file: Its path.
        number: The group's number, from 0 on.

    Raises:
        OSError: The file cannot be read.
        ValueError: It has another format.
    """
    with naming([Path(file)]):
        if file.lower().endswith(PARQUET):
            with pq.ParquetFile(file) as opened:
                return opened.read_row_group(number), {}
        return READERS[Path(file).suffix.lower()](file)


def _arrow(file: str) -> tuple[pa.Table, Problems]:
    with pa.memory_map(file) as opened:
        return pa.ipc.open_file(opened).read_all(), {}


def _arrays(file: str) -> tuple[pa.Table, Problems]:
    with np.load(file, allow_pickle=False) as arrays:
        return pa.table({name: arrow_column(arrays[name]) for name in arrays.files}), {}


def _csv(file: str) -> tuple[pa.Table, Problems]:
    """Every value is text; that of an input is a number, or a list of numbers as JSON."""
    with open(file, newline="", encoding="utf-8-sig") as opened:
        lines = csv.reader(opened)
        names = next(lines, [])
        rows, problems = list[Sequence[str | None]](), dict[int, str]()
        for line in lines:
            if not line:
                continue
            if len(line) != len(names):
                problems[len(rows)] = f"it has {len(line)} values; {len(names)} were expected"
            rows.append((*line, *[None] * len(names))[: len(names)])
    return pa.table({name: pa.array([row[n] for row in rows], pa.string()) for n, name in enumerate(names)}), problems


def _json_lines(file: str) -> tuple[pa.Table, Problems]:
    rows, problems = list[dict[str, Any]](), dict[int, str]()
    with open(file, encoding="utf-8") as opened:
        for line in filter(str.strip, opened):
            try:
                row = json.loads(line)
            except ValueError as error:
                row = None
                problems[len(rows)] = f"it is no JSON: {error}"
            if not isinstance(row, dict):
                problems.setdefault(len(rows), "it is no object of JSON")
                row = {}
            rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: _column_of([row.get(name) for row in rows]) for name in names}), problems


def _column_of(values: list[Any]) -> pa.Array:
    """Return values of one type as Arrow has them, others as JSON."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if value is None else json.dumps(value) for value in values])


READERS: dict[str, Callable[[str], tuple[pa.Table, Problems]]] = {
    ".arrow": _arrow,
    ".feather": _arrow,
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".npz": _arrays,
}

LIST = ".txt"  # a file with the path of a file in each line
TABLES = (PARQUET, *READERS)
SUFFIXES = (ARRAYS, *TABLES, *ARCHIVES, *IMAGES)

# Characters of a pattern.
PATTERN = "*?["


def open_rows(
    paths: Sequence[Path],
    model: bytes,
    inputs: Sequence[TensorInfo],
    *,
    columns: Mapping[str, str] | None = None,
    mean: float | None = None,
    std: float | None = None,
) -> RowSource:
    """Return the rows of files, in the alphabetical order of the files of each folder and of each pattern.

    Args:
        paths: Files; folders, with all folders below them; patterns such as ``images/*.jpg``; and ``.txt`` files that
            list others, one in each line.
        model: The bytes of the model, whose metadata may say how pixels are normalized.
        inputs: The inputs of the model.
        columns: The names of columns of tables by names of inputs, where they differ.
        mean: As of :class:`tflgpu.inputs.InputReader`.
        std: As of :class:`tflgpu.inputs.InputReader`.

    Raises:
        OSError: A file is not there.
        ValueError: The files are of several kinds, or one does not fit the model.
    """
    files = [each for path in paths for each in _found(path)]
    kinds = {_kind(file) for file, _ in files}
    if len(kinds) > 1:
        raise ValueError(f"the inputs end in {' and '.join(sorted(kinds))}; give those of one kind")
    if not files:
        raise ValueError("the inputs name no files")
    names = tuple(str(file) for file, _ in files)
    known = [info.name for info in inputs]
    if unknown := sorted(set(columns or ()) - set(known)):
        raise ValueError(f"columns names {unknown}; the model has the inputs {known}")
    if kinds <= set(TABLES):
        return TableRows(names, tuple(inputs), dict(columns or {}))
    if len(inputs) != 1:
        raise ValueError(
            f"the model has the inputs {', '.join(map(repr, known))}; give a table, such as Parquet, with a column "
            "for each"
        )
    one_row = replace(inputs[0], shape=(1, *inputs[0].shape[1:]))
    listing = list_arrays([file for file, _ in files], one_row) if kinds == {ARRAYS} else list_images(files)
    return ListedRows(names, listing, one_row, InputReader(model, [one_row], mean=mean, std=std))


def _found(path: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield the files of an argument, each with its label: the folder below the one that was given, if it has one."""
    if path.is_dir():
        files = sorted(
            (each for each in path.rglob("*") if _suffix(each) and each.is_file() and not _hidden(each, path)),
            key=lambda each: each.relative_to(path).parts,
        )
        if not files:
            raise ValueError(f"{path} has no file that ends in {', '.join(SUFFIXES)}")
        labels = [each.relative_to(path).parent.as_posix() for each in files]
        for file, label in zip(files, labels, strict=True):
            yield file.absolute(), None if set(labels) == {"."} else label
    elif not path.exists() and any(c in str(path) for c in PATTERN):
        matches = sorted(each for each in map(Path, glob.glob(str(path), recursive=True)) if each.is_file())
        if not matches:
            raise FileNotFoundError(f"no file matches {path}")
        yield from ((each.absolute(), None) for each in matches)
    elif path.suffix.lower() == LIST:
        lines = filter(None, map(str.strip, path.read_text().splitlines()))
        yield from ((path.absolute().parent / line, None) for line in lines)
    else:
        yield path.absolute(), None


def _hidden(file: Path, folder: Path) -> bool:
    """Whether readers of folders leave a file out, as those of Parquet do: for what starts with a dot or a line."""
    return any(part[0] in "._" for part in file.relative_to(folder).parts)


def _suffix(file: Path) -> str | None:
    """Return the suffix of a file that may have rows."""
    return next((suffix for suffix in SUFFIXES if file.name.lower().endswith(suffix)), None)


def _kind(file: Path) -> str:
    """Raise ValueError for a file of another kind, and OSError for a table or an array that is not there."""
    suffix = _suffix(file)
    if suffix is None:
        raise ValueError(f"{file} ends in none of {', '.join(SUFFIXES)}")
    if suffix in IMAGES or is_archive(file):
        return "an image's suffix"
    file.stat()
    return suffix
