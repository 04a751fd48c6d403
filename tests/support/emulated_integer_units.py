"""Integer units in plain C, for CPUs that lack their instructions. What calls them is the text that other CPUs get."""

from __future__ import annotations

from pathlib import Path

from tflgpu.codegen.environment import rendered
from tflgpu.kernels.integers.units import UNITS, IntegerUnit

# The flags of /proc/cpuinfo that a CPU has for each unit.
FLAGS = {"avx512_vnni": "avx512_vnni", "avx_vnni": "avx_vnni", "avx2": "avx2", "neon_dot": "asimddp"}

# Addresses are of global or of local memory, which are the same memory on a CPU.
FUNCTION = """
void {name}(ulong activations, ulong offsets, ulong weights, ulong sums, ulong quads, ulong starts, ulong step) {{
  for (int row = 0; row < {rows}; ++row) for (int column = 0; column < {columns}; ++column) {{
    int sum = ((__global const int *)(starts + row * step))[column];
    for (ulong quad = 0; quad < quads; ++quad) for (int i = 0; i < 4; ++i) {{
      const ulong part = (4 * quad + i) / {inputs}, input = i % {inputs};
      const ulong inputs_of_row = activations + ((__global const int *)offsets)[quad];
      sum += ((__global const {element} *)inputs_of_row)[4 * row + i]
        * ((__global const {weight} *)weights)[(part * {packed} + column) * {inputs} + input];
    }}
    ((__global int *)sums)[row * {columns} + column] = sum;
  }}
}}
"""


def is_here(unit: str) -> bool:
    """Tell whether the CPU has the instructions of a unit."""
    file = Path("/proc/cpuinfo")
    return file.exists() and FLAGS[unit] in file.read_text().split()


def emulated(text: str, unit: str) -> str:
    """A program for a unit, with the functions in assembly replaced if the CPU cannot run them."""
    assembly = rendered("integers/unit", unit=UNITS[unit])
    assert assembly in text
    return text if is_here(unit) else text.replace(assembly, "".join(map(_functions, UNITS[unit].all)))


def _functions(unit: IntegerUnit) -> str:
    element = "short" if unit.widens else "char" if unit.offset else "uchar"
    return "".join(
        FUNCTION.format(
            name=f"{unit.function}_{rows}x{registers}" + (f"_of_{packed}" if packed > registers else ""),
            rows=rows,
            columns=registers * unit.lanes,
            packed=packed * unit.lanes,
            inputs=unit.inputs,
            element=element,
            weight="short" if unit.weight_bytes == 2 else "char",
        )
        for rows, registers, packed in unit.products
    )
