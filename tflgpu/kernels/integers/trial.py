"""Known operands of an integer unit, and their sums: whether a compiler makes right code of its assembly."""

from __future__ import annotations

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.kernels.architecture import Trial
from tflgpu.kernels.integers.units import IntegerUnit

QUADS = 7  # of the products
START = 1000  # what a sum is before
EXTREMES = {1: (-128, -127, -1, 0, 1, 127), 2: (-255, -128, -1, 0, 127, 255)}  # of weights, by their packed bytes


def trial_of(unit: IntegerUnit) -> Trial:
    """Operands as they are packed for a unit and the wider one, and the sums of all their blocks."""
    random, run = np.random.default_rng(0), 1 + max(rows for each in unit.all for rows, _ in each.shapes)
    operands, sums = list[Array](), list[Array]()
    for each in unit.all:
        columns = each.packed_registers * each.lanes
        x = random.choice([0, 1, 127, 128, 254, 255], (QUADS, run, 4)) - each.offset
        packed = np.int16 if each.widens else np.int8 if each.offset else np.uint8
        weights = random.choice(EXTREMES[each.weight_bytes], QUADS * columns * 4)
        offsets = np.arange(QUADS, dtype=np.int32) * (run * 4 * each.element_bytes)
        operands += [x.astype(packed), weights.astype(f"i{each.weight_bytes}"), offsets]
        for rows, registers, together in each.products:
            own, all_columns = registers * each.lanes, together * each.lanes
            seen = weights[: QUADS * all_columns * 4].reshape(QUADS, 4 // each.inputs, all_columns, each.inputs)
            seen = seen[:, :, :own]  # a block of fewer columns reads a part of the weights
            inputs = x[:, :rows].reshape(QUADS, rows, 4 // each.inputs, each.inputs)
            sums.append(START + np.einsum("qrpi,qpci->rc", inputs, seen).reshape(-1))
    after = np.concatenate(sums).astype(np.int32)
    return Trial(
        "multiply_integers",
        ("integers/unit", "probes/integer_unit"),
        {"unit": unit, "quads": QUADS},
        tuple(operands),
        np.full(after.size, START, np.int32),
        after,
    )
