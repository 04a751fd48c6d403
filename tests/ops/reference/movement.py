"""Operators that move elements, and those that choose among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.ops.reference.elementwise import Array


def top_k(x: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The greatest of the last axis in descending order, of equal ones the first; and where they stood."""
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, axis=-1), order.astype(np.int32)


@dataclass(frozen=True)
class SliceSpec:
    """STRIDED_SLICE's constants and masks; bit i of a mask speaks of entry i of the constants."""

    begin: Sequence[int]
    end: Sequence[int]
    strides: Sequence[int]
    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0

    def index(self) -> tuple[slice | int | EllipsisType | None, ...]:
        """The numpy index that means the same: Python took its slicing rules from the same place."""
        return tuple(map(self._entry, range(len(self.begin))))

    def _entry(self, i: int) -> slice | int | EllipsisType | None:
        bit = 1 << i
        if self.ellipsis_mask & bit:
            return ...
        if self.new_axis_mask & bit:
            return None
        if self.shrink_axis_mask & bit:
            return self.begin[i]
        begin = None if self.begin_mask & bit else self.begin[i]
        end = None if self.end_mask & bit else self.end[i]
        return slice(begin, end, self.strides[i])


def strided_slice(x: Array, spec: SliceSpec) -> Array:
    return np.asarray(x[spec.index()])


def mirror_pad(x: Array, margins: Sequence[tuple[int, ...]], mode: str) -> Array:
    if mode == "REFLECT":
        return np.pad(x, margins, mode="reflect")
    return np.pad(x, margins, mode="symmetric")


def depth_to_space(x: Array, block: int) -> Array:
    batch, height, width, channels = x.shape
    pixels = x.reshape(batch, height, width, block, block, channels // block**2)
    return pixels.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height * block, width * block, -1)


def space_to_depth(x: Array, block: int) -> Array:
    batch, height, width, channels = x.shape
    pixels = x.reshape(batch, height // block, block, width // block, block, channels)
    return pixels.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // block, width // block, -1)


def space_to_batch(x: Array, block: Sequence[int], paddings: Sequence[tuple[int, int]]) -> Array:
    """Every ``block``-th pixel of the padded images, for each place in a block."""
    padded = np.pad(x, [(0, 0), *paddings, *[(0, 0)] * (x.ndim - 1 - len(block))])
    places = np.ndindex(*block)
    return np.concatenate(
        [padded[(slice(None), *(slice(p, None, b) for p, b in zip(place, block, strict=True)))] for place in places]
    )


def batch_to_space(x: Array, block: Sequence[int], crops: Sequence[tuple[int, int]]) -> Array:
    """Every image becomes every ``block``-th pixel of a larger one, which is then cropped."""
    places = list(np.ndindex(*block))
    sizes = [d * b for d, b in zip(x.shape[1:], block, strict=False)]
    images = np.zeros((len(x) // len(places), *sizes, *x.shape[1 + len(block) :]), x.dtype)
    for place, part in zip(places, np.split(x, len(places)), strict=True):
        images[(slice(None), *(slice(p, None, b) for p, b in zip(place, block, strict=True)))] = part
    kept = (slice(before, size - after) for size, (before, after) in zip(sizes, crops, strict=True))
    return images[(slice(None), *kept)]


def gather(x: Array, indices: NDArray[np.integer], axis: int, batch_dims: int) -> Array:
    if batch_dims == 0:
        return np.take(x, indices, axis)
    pairs = zip(x, indices, strict=True)
    return np.stack([gather(image, row, axis - 1, batch_dims - 1) for image, row in pairs])


def one_hot(indices: NDArray[np.integer], depth: int, on: Array, off: Array, axis: int) -> Array:
    hot = indices[..., np.newaxis] == np.arange(depth)
    return np.moveaxis(np.where(hot, on, off), -1, axis)


def dynamic_update_slice(x: Array, update: Array, start: NDArray[np.integer]) -> Array:
    first = np.clip(start, 0, np.subtract(x.shape, update.shape))
    result = x.copy()
    result[tuple(slice(f, f + size) for f, size in zip(first, update.shape, strict=True))] = update
    return result
