"""Columns of Arrow's tables <-> numpy arrays, and the formats in which tables of results are written."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from math import isfinite, prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
from numpy.typing import NDArray


def arrow_column(rows: NDArray[Any]) -> pa.Array:
    """Return rows as a column of Arrow.

    Args:
        rows: An array whose first axis counts rows.

    Returns:
        Numbers for an array of one axis; else tensors of a fixed shape, which readers that know none take for lists.
    """
    if rows.ndim == 1:
        return pa.array(rows)
    shape = rows.shape[1:]
    numbers = pa.array(np.ascontiguousarray(rows).reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(numbers, prod(shape))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(numbers.type, shape), lists)


def numpy_column(name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of Arrow as an array whose first axis counts rows.

    Args:
        name: The column's name, for messages.
        column: Numbers, tensors of a fixed shape, or lists of equal lengths, nested or not. Tensors of other libraries
            are lists here: their rows come flat.

    Raises:
        ValueError: The column has another type, or lists of different lengths.
    """
    array = column.combine_chunks()
    try:
        rows = _rows(array.storage if isinstance(array, pa.ExtensionArray) else array)
    except ValueError as error:
        raise ValueError(f"column {name!r} of type {column.type} is no input: {error}") from error
    if not isinstance(array, pa.FixedShapeTensorArray):
        return rows
    stored = rows.reshape(len(rows), *array.type.shape)
    axes = array.type.permutation
    return stored if axes is None else stored.transpose(0, *(axis + 1 for axis in axes))


def check_numbers(name: str, kind: pa.DataType) -> None:
    """Accept a type of columns that has numbers, or lists of them.

    Args:
        name: The column's name, for the message.
        kind: The column's type.

    Raises:
        ValueError: It has neither.
    """
    inner = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    while _is_list(inner):
        inner = inner.value_type
    if not (pa.types.is_primitive(inner) or pa.types.is_null(inner)):
        raise ValueError(f"column {name!r} has the type {kind}; numbers, or lists of numbers, were expected")


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _rows(array: pa.Array) -> NDArray[Any]:
    kind = array.type
    if array.null_count:
        raise ValueError(f"null stands for {array.null_count} of its values")
    if pa.types.is_primitive(kind):
        numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return numbers
    if not _is_list(kind):
        raise ValueError("numbers, or lists of numbers, were expected")
    inner = _rows(array.flatten())
    lengths = np.unique(array.value_lengths())
    if len(lengths) > 1:
        raise ValueError(f"its rows have from {lengths[0]} to {lengths[-1]} values")
    return inner.reshape(len(array), *map(int, lengths), *inner.shape[1:])


def _parquet(table: pa.Table, file: IO[bytes]) -> None:
    pq.write_table(table, file)


def _arrow(table: pa.Table, file: IO[bytes]) -> None:
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _csv(table: pa.Table, file: IO[bytes]) -> None:
    """Write lists as JSON."""
    flat = {name: _text(table[name]) if _is_nested(table[name].type) else table[name] for name in table.column_names}
    pa.csv.write_csv(pa.table(flat), file)


def _json_lines(table: pa.Table, file: IO[bytes]) -> None:
    columns = [list(_values(table[name])) for name in table.column_names]
    for row in zip(*columns, strict=True):
        file.write(json.dumps(dict(zip(table.column_names, row, strict=True))).encode() + b"\n")


def _arrays(table: pa.Table, file: IO[bytes]) -> None:
    """Write NaN for numbers that are null, or 0 where there is no NaN, and empty texts."""
    arrays: dict[str, Any] = {name: _array(table[name]) for name in table.column_names}
    np.savez(file, **arrays)


def _web_dataset(table: pa.Table, file: IO[bytes]) -> None:
    """Write a sample for each row: an array for each output, and ``.json`` with the rest."""
    arrays = [name for name in table.column_names if isinstance(table[name].type, pa.FixedShapeTensorType)]
    others = [name for name in table.column_names if name not in arrays]
    columns = {name: table[name].combine_chunks() for name in arrays}
    values = [list(_values(table[name])) for name in others]
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number in range(len(table)):
            for name, column in columns.items():
                if column[number].is_valid:
                    content = BytesIO()
                    np.save(content, numpy_column(name, pa.chunked_array([column.slice(number, 1)]))[0])
                    _add(archive, f"{number:06}.{name.replace('/', '_').replace('.', '_')}.npy", content.getvalue())
            rest = {name: column[number] for name, column in zip(others, values, strict=True)}
            _add(archive, f"{number:06}.json", json.dumps(rest).encode())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, BytesIO(content))


FORMATS: dict[str, Callable[[pa.Table, IO[bytes]], None]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "csv": _csv,
    "jsonl": _json_lines,
    "npz": _arrays,
    "tar": _web_dataset,
}


def write(table: pa.Table, path: Path, kind: str) -> None:
    """Write a table to a file that is flushed to the disk.

    Args:
        table: The rows.
        path: The file. An older one is replaced.
        kind: A key of ``FORMATS``.

    Raises:
        OSError: The file cannot be written.
    """
    with open(path, "wb") as file:
        FORMATS[kind](table, file)
        file.flush()
        os.fsync(file.fileno())


def _is_nested(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind)


def _values(column: pa.ChunkedArray) -> Iterator[Any]:
    """Yield values as JSON has them: numbers that are not finite are null."""
    if not isinstance(column.type, pa.FixedShapeTensorType):
        yield from map(_plain, column.to_pylist())
        return
    array = column.combine_chunks()
    for number in range(len(array)):
        valid = array[number].is_valid
        yield _plain(numpy_column("", pa.chunked_array([array.slice(number, 1)]))[0].tolist()) if valid else None


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str, dict)) else str(value)


def _text(column: pa.ChunkedArray) -> pa.Array:
    return pa.array([None if value is None else json.dumps(value) for value in _values(column)], pa.string())


def _array(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    if column.null_count == 0 and not pa.types.is_string(column.type):
        return numpy_column("", column)
    array = column.combine_chunks()
    good = np.array([value.is_valid for value in array])
    if pa.types.is_string(column.type):
        return np.array([value or "" for value in array.to_pylist()], str)
    found = numpy_column("", pa.chunked_array([array.filter(pa.array(good))]))
    whole = np.full((len(good), *found.shape[1:]), np.nan if found.dtype.kind == "f" else 0, found.dtype)
    whole[good] = found
    return whole
