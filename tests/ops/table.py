"""The op test table."""

from __future__ import annotations

from . import convolutions, elementwise, logic, matrices, movement, rearranging, regressions, spatial
from .case import Row

ROWS: tuple[Row, ...] = (
    *convolutions.ROWS,
    *elementwise.ROWS,
    *logic.ROWS,
    *matrices.ROWS,
    *spatial.ROWS,
    *movement.ROWS,
    *rearranging.ROWS,
    *regressions.ROWS,
)
