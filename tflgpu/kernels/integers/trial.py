"""Known operands of an integer unit, and their sums: whether a compiler makes right code of its assembly."""

from __future__ import annotations

import numpy as np

from tflgpu.kernels.architecture import Trial
from tflgpu.kernels.integers.units import IntegerUnit

QUADS = 7  # of the products
START = 1000  # what a sum is before


def trial_of(unit: IntegerUnit) -> Trial:
    """Activations and weights as they are packed for a unit, extremes among them, and the sums of all its blocks."""
    random, run = np.random.default_rng(0), 1 + max(rows for rows, _ in unit.shapes)
    columns = max(registers for _, registers in unit.shapes) * unit.lanes
    x = random.choice([0, 1, 127, 128, 254, 255], (QUADS, run, 4)) - unit.offset
    packed = x.astype(np.int16 if unit.widens else np.int8 if unit.offset else np.uint8)
    weights = random.choice([-128, -127, -1, 0, 1, 127], QUADS * columns * 4).astype(np.int8)
    sums = []
    for rows, registers in unit.shapes:
        own = registers * unit.lanes  # columns; a block of fewer ones reads a part of the weights
        seen = weights[: QUADS * own * 4].reshape(QUADS, 4 // unit.inputs, own, unit.inputs)
        inputs = x[:, :rows].reshape(QUADS, rows, 4 // unit.inputs, unit.inputs)
        sums.append(START + np.einsum("qrpi,qpci->rc", inputs, seen.astype(np.int64)).reshape(-1))
    after = np.concatenate(sums).astype(np.int32)
    return Trial(
        "multiply_integers",
        ("integers/unit", "probes/integer_unit"),
        {"unit": unit, "quads": QUADS, "run": run},
        (packed, weights),
        np.full(after.size, START, np.int32),
        after,
    )
