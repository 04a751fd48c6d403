"""Pictures, and how far masks of them agree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IMAGES = ("cat.png", "dog_segmentation.png", "grace_hopper.png")


def overlap(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Intersection over union of two boxes (top, left, bottom, right)."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    common = float(np.prod(np.maximum(sides, 0)))
    return common / (float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - common)
