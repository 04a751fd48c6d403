"""The op test table."""

from __future__ import annotations

from tests.ops.case import Row
from tests.ops.rows import (
    convolutions,
    corners,
    detection,
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
    scattering,
    sorting,
    spatial,
    spectra,
    stablehlo_twins,
    volumes,
)

ROWS: tuple[Row, ...] = (
    *convolutions.ROWS,
    *corners.ROWS,
    *detection.ROWS,
    *elementwise.ROWS,
    *logic.ROWS,
    *matrices.ROWS,
    *mediapipe.ROWS,
    *spatial.ROWS,
    *spectra.ROWS,
    *stablehlo_twins.ROWS,
    *volumes.ROWS,
    *movement.ROWS,
    *quantized.ROWS,
    *rearranging.ROWS,
    *recurrent.ROWS,
    *reductions.ROWS,
    *regressions.ROWS,
    *scattering.ROWS,
    *sorting.ROWS,
    *integers.ROWS,
)
