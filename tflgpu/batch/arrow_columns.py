"""Columns of Arrow's tables <-> numpy arrays with one row along the first axis."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
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
