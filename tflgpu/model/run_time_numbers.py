"""Numbers that only a run can tell: what is meant of a result, and how often a loop goes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.tensor_info import TensorIndex

Array = NDArray[Any]


@dataclass(frozen=True)
class Trim:
    """Along ``axis`` of output ``output`` only the first elements are meant. size: which of the sizes says how many."""

    output: int
    axis: int
    size: int


def trimmed(results: Sequence[Array], trims: Sequence[Trim], sizes: Sequence[Array]) -> list[Array]:
    """Return the results without what is not meant.

    Args:
        results: Arrays of their upper bounds.
        trims: What to cut off.
        sizes: One number each.

    Returns:
        Contiguous arrays: the results themselves where nothing is cut off.
    """
    found = list(results)
    for trim in trims:
        kept = (slice(None),) * trim.axis + (slice(int(sizes[trim.size])),)
        found[trim.output] = found[trim.output][kept]
    return [np.ascontiguousarray(array) if array.ndim else array for array in found]


Values = Mapping[TensorIndex, NDArray[np.generic]]  # of tensors of the file


@dataclass(frozen=True)
class Scalar:
    """``offset``, and the value that a tensor of the file has when the loop begins, if there is one."""

    tensor: TensorIndex | None
    offset: int

    def value(self, values: Values) -> int:
        """Return the number, from the values of constant tensors."""
        return self.offset + (0 if self.tensor is None else int(values[self.tensor].reshape(-1)[0]))


@dataclass(frozen=True)
class Bound:
    """A loop goes on as long as ``upper`` is greater than ``lower``.

    closing: how much nearer an iteration brings the two.
    """

    upper: Scalar
    lower: Scalar
    closing: int


def trip_count(bounds: Sequence[Bound], values: Values) -> int:
    """Return the number of iterations of a loop that goes on as long as all bounds say so.

    Args:
        bounds: At least one.
        values: Numbers of the tensors that bounds refer to.
    """
    return max(0, min(-((b.lower.value(values) - b.upper.value(values)) // b.closing) for b in bounds))
