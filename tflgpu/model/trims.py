"""Results of which a run cuts off what is not meant: their sizes have an upper bound in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
