"""Sparse constants -> dense ones, after the schema's SparsityParameters.

A sparse tensor is stored dimension by dimension in ``traversal order``; blocked dimensions come twice, first the
blocks, then the places within a block. Each level is dense (all indices) or compressed (segments of explicit indices).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

from tflgpu.errors import ModelError
from tflgpu.graph.layout import Shape

DENSE, COMPRESSED = 0, 1


def densify(values: NDArray[Any], shape: Shape, sparsity: Any) -> NDArray[Any]:
    """The dense array of ``shape`` that ``values`` and a flatbuffer table SparsityParameters stand for.

    Raises ModelError if the table does not fit the values or the shape.
    """
    order = sparsity.TraversalOrderAsNumpy()
    blocks = [] if isinstance(sparsity.BlockMapAsNumpy(), int) else sparsity.BlockMapAsNumpy().tolist()
    barrier_intervals = [sparsity.DimMetadata(i) for i in range(len(order))]
    # A path is where one stored value lies: an index for each level, outermost first.
    paths = np.zeros((1, 0), np.int64)
    for level in barrier_intervals:
        paths = _descend(paths, level, limit=prod(shape))
    if len(order) != len(shape) + len(blocks) or len(paths) != values.size:
        raise ModelError(
            f"a sparse constant of shape {list(shape)} has {values.size} values, but its index leads to {len(paths)}"
        )
    coordinates = np.zeros((len(shape), len(paths)), np.int64)
    sizes = {int(order[i]): barrier_intervals[i].DenseSize() for i in range(len(order)) if int(order[i]) >= len(shape)}
    for level, place in zip(order.tolist(), paths.T, strict=True):
        if level < len(shape):
            block = next((sizes[len(shape) + k] for k, axis in enumerate(blocks) if axis == level), 1)
            coordinates[level] += place * block
        else:
            coordinates[blocks[level - len(shape)]] += place
    if any((c >= size).any() for c, size in zip(coordinates, shape, strict=True)):
        raise ModelError(f"a sparse constant has values outside of its shape {list(shape)}")
    dense = np.zeros(prod(shape), values.dtype)
    dense[np.ravel_multi_index(tuple(coordinates), shape)] = values
    return dense.reshape(shape)


def _descend(paths: NDArray[np.int64], level: Any, limit: int) -> NDArray[np.int64]:
    """All continuations of ``paths`` by one level, of which there can be no more than elements of the tensor."""
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
    """One of the unions of index vectors, of 8, 16 or 32 bits."""
    kind = getattr(level, f"{name}Type")()
    names = {v: n for n, v in vars(tflite.SparseIndexVector).items() if not n.startswith("_")}
    table = getattr(tflite, names[kind])()
    union = getattr(level, name)()
    table.Init(union.Bytes, union.Pos)
    values: NDArray[np.int64] = table.ValuesAsNumpy().astype(np.int64)
    return values
