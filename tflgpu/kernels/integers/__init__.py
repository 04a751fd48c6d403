"""CPUs with an integer unit: products of activations that are stored as 8-bit integers by weights of 8 bits."""

from __future__ import annotations

from tflgpu.kernels.architecture import Architecture
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.integers.units import UNITS, trial_of

INTEGERS = Architecture(
    "integers",
    lambda target: target.integer_unit in UNITS,
    refines=CPU,
    prelude=("integers/unit",),
    facts=lambda target: {"unit": UNITS[target.integer_unit or ""]},
    trial=lambda target: trial_of(UNITS[target.integer_unit or ""]),
).register()

KERNELS: tuple[str, ...] = ("integer_depthwise", "integer_products", "read_inputs")
