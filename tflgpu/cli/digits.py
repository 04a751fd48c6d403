"""Grey images drawn with characters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

SHADES, ASCII_SHADES = " ░▒▓█", " .:*#"


def drawing(image: NDArray[np.uint8], white: int, *, ascii_only: bool) -> Text:
    """``image`` (height, width), 0..``white``, as lines of text; a pixel is two characters, which make it square."""
    shades = ASCII_SHADES if ascii_only else SHADES
    barrier_intervals = np.rint(image / white * (len(shades) - 1)).astype(int)
    return Text("\n".join("".join(shades[level] * 2 for level in row) for row in barrier_intervals))
