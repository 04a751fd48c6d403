"""Columns of Arrow's tables <-> numpy arrays with one row along the first axis."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def arrow_column(rows: NDArray[Any]) -> pa.Array:
    """Numbers as they are; rows with axes as tensors of a fixed shape, which readers that know none take for lists."""
    if rows.ndim == 1:
        return pa.array(rows)
    shape = rows.shape[1:]
    numbers = pa.array(np.ascontiguousarray(rows).reshape(-1))
    lists = pa.FixedSizeListArray.from_arrays(numbers, prod(shape))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(numbers.type, shape), lists)


def numpy_column(name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    """Numbers, tensors of a fixed shape, and lists of equal lengths, nested or not.

    Tensors of other libraries are lists to this one: their rows come flat. Raises ValueError for any other column.
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
    """Raise ValueError for a type of columns that has neither numbers nor lists of them."""
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
