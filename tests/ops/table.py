"""The op test table."""

from __future__ import annotations

from . import convolutions, elementwise, movement, regressions, spatial
from .case import Row

ROWS: tuple[Row, ...] = (
    *convolutions.ROWS,
    *elementwise.ROWS,
    *spatial.ROWS,
    *movement.ROWS,
    *regressions.ROWS,
)
