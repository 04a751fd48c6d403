"""Copies between host and device, of arrays that may have no elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

Place = cl.Buffer | NDArray[Any]


def copy(queue: cl.CommandQueue, target: Place, source: Place, **arguments: Any) -> tuple[cl.Event, ...]:
    """Enqueue a copy, unless there are no bytes to copy.

    At least one of both places is on the host, or ``byte_count`` is given.

    Args:
        queue: Of the context of both.
        target: Gets the bytes.
        source: Has the bytes.
        **arguments: Others of pyopencl's ``enqueue_copy``.

    Returns:
        Its event, or nothing.
    """
    sizes = [place.nbytes for place in (target, source) if isinstance(place, np.ndarray)]
    if 0 in (*sizes, arguments.get("byte_count")):
        return ()  # OpenCL before 2.1 has no copy of no bytes
    return (cl.enqueue_copy(queue, target, source, **arguments),)
