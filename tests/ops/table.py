"""The op test table."""

from __future__ import annotations

from tests.ops.case import Row
from tests.ops.rows import (
    convolutions,
    corners,
    elementwise,
    integers,
    logic,
    matrices,
    mediapipe,
    movement,
    quantized,
    rearranging,
    recurrent,
    reductions,
    regressions,
    spatial,
)

ROWS: tuple[Row, ...] = (
    *convolutions.ROWS,
    *corners.ROWS,
    *elementwise.ROWS,
    *logic.ROWS,
    *matrices.ROWS,
    *mediapipe.ROWS,
    *spatial.ROWS,
    *movement.ROWS,
    *quantized.ROWS,
    *rearranging.ROWS,
    *recurrent.ROWS,
    *reductions.ROWS,
    *regressions.ROWS,
    *integers.ROWS,
)
