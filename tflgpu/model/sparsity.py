"""Constants that a file stores in fewer bytes: sparse ones, by SparsityParameters, and integers of 4 bits.

A sparse tensor is stored dimension by dimension, in ``traversal order``; each dimension is a *level* of the index. A
blocked dimension has two levels: the blocks, and later the places within a block. A level is dense (it has all indices)
or compressed (it lists segments of indices).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

from tflgpu.errors import ModelError
from tflgpu.graph.layout import Shape


def unpacked_nibbles(data: NDArray[np.uint8], shape: Shape) -> NDArray[np.int8]:
    """Return the integers of a constant of 4 bits, -8 to 7.

    Args:
        data: Two integers in each byte, the first in the low bits.
        shape: The constant's.
    """
    both = np.empty((data.size, 2), np.int8)
    signed = data.view(np.int8)
    both[:, 0], both[:, 1] = (signed << 4) >> 4, signed >> 4
    return both.reshape(-1)[: prod(shape)].reshape(shape)


DENSE, COMPRESSED = 0, 1


@dataclass(frozen=True)
class StoredForm:
    """A sparse constant as the file has it. parameters: in the form in which LiteRT describes it."""

    values: NDArray[Any]
    parameters: dict[str, Any]


def stored_form(values: NDArray[Any], sparsity: Any) -> StoredForm:
    """Return a sparse constant as the file stores it.

    Args:
        values: The stored values.
        sparsity: A flatbuffer table SparsityParameters that :func:`densify` has accepted.
    """
    parameters: dict[str, Any] = {"traversal_order": sparsity.TraversalOrderAsNumpy()}
    if not sparsity.BlockMapIsNone():
        parameters["block_map"] = sparsity.BlockMapAsNumpy()
    levels = map(sparsity.DimMetadata, range(sparsity.DimMetadataLength()))
    parameters["dim_metadata"] = [
        {"format": DENSE, "dense_size": level.DenseSize()}
        if level.Format() == DENSE
        else {
            "format": COMPRESSED,
            "array_segments": _vector(level, "ArraySegments").astype(np.int32),
            "array_indices": _vector(level, "ArrayIndices").astype(np.int32),
        }
        for level in levels
    ]
    return StoredForm(values, parameters)


def densify(values: NDArray[Any], shape: Shape, sparsity: Any) -> NDArray[Any]:
    """Return the dense array of a sparse constant.

    Args:
        values: The stored values.
        shape: The constant's.
        sparsity: A flatbuffer table SparsityParameters.

    Raises:
        ModelError: The table does not fit the values or the shape.
    """
    order = sparsity.TraversalOrderAsNumpy()
    blocks = [] if isinstance(sparsity.BlockMapAsNumpy(), int) else sparsity.BlockMapAsNumpy().tolist()
    if sorted(order.tolist()) != list(range(len(order))) or not all(0 <= axis < len(shape) for axis in blocks):
        raise ModelError(f"a sparse constant of shape {list(shape)} has an index of dimensions that it does not have")
    levels = [sparsity.DimMetadata(i) for i in range(len(order))]
    # A path is the place of one stored value: an index for each level, outermost first.
    paths = np.zeros((1, 0), np.int64)
    for level in levels:
        paths = _descend(paths, level, limit=prod(shape))
    if len(order) != len(shape) + len(blocks) or len(paths) != values.size:
        raise ModelError(
            f"a sparse constant of shape {list(shape)} has {values.size} values, but its index leads to {len(paths)}"
        )
    coordinates = np.zeros((len(shape), len(paths)), np.int64)
    # Dimensions past the tensor's own are the places within blocks.
    block_sizes = {int(d): level.DenseSize() for d, level in zip(order, levels, strict=True) if d >= len(shape)}
    for dimension, places in zip(order.tolist(), paths.T, strict=True):
        if dimension < len(shape):
            size = next((block_sizes[len(shape) + k] for k, axis in enumerate(blocks) if axis == dimension), 1)
            coordinates[dimension] += places * size
        else:
            coordinates[blocks[dimension - len(shape)]] += places
    if any((c >= size).any() for c, size in zip(coordinates, shape, strict=True)):
        raise ModelError(f"a sparse constant has values outside of its shape {list(shape)}")
    dense = np.zeros(prod(shape), values.dtype)
    dense[np.ravel_multi_index(tuple(coordinates), shape)] = values
    return dense.reshape(shape)


def _descend(paths: NDArray[np.int64], level: Any, limit: int) -> NDArray[np.int64]:
    """Each of ``paths`` with every index that the next level has for it. Raises ModelError for more than ``limit``."""
    if level.Format() == DENSE:
        size = level.DenseSize()
        if not 0 <= size * len(paths) <= limit:
            raise ModelError(
                f"a sparse constant has a level of {size} indices for {len(paths)} places, more than it can hold"
            )
        own = np.tile(np.arange(size), len(paths))
        return np.column_stack([np.repeat(paths, size, axis=0), own])
    segments, indices = _vector(level, "ArraySegments"), _vector(level, "ArrayIndices")
    counts = np.diff(segments)
    if len(counts) != len(paths) or (counts < 0).any() or counts.sum() != len(indices):
        raise ModelError("a sparse constant has segments that do not fit its indices")
    return np.column_stack([np.repeat(paths, counts, axis=0), indices])


def _vector(level: Any, name: str) -> NDArray[np.int64]:
    """Return the segments or indices of a level; the schema has a union for vectors of 8, 16 and 32 bits."""
    kind = getattr(level, f"{name}Type")()
    names = {v: n for n, v in vars(tflite.SparseIndexVector).items() if not n.startswith("_")}
    table = getattr(tflite, names[kind])()
    union = getattr(level, name)()
    table.Init(union.Bytes, union.Pos)
    values: NDArray[np.int64] = table.ValuesAsNumpy().astype(np.int64)
    return values
