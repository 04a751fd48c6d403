"""A compiled model as a table: its inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable

from tflgpu.model.tensor_info import TensorInfo
from tflgpu.report.table import Table


def model_table(title: str, inputs: Iterable[TensorInfo], outputs: Iterable[TensorInfo], notes: Iterable[str]) -> Table:
    """Return a table with one row for each input and output.

    Args:
        title: The line above the table.
        inputs: In the order of the signature.
        outputs: In the order of the signature.
        notes: Lines below the table.
    """
    rows = [_row(role, info) for role, infos in (("input", inputs), ("output", outputs)) for info in infos]
    return Table(title, ("", "name", "type", "shape", "quantization"), rows, notes=tuple(notes))


def _row(role: str, info: TensorInfo) -> tuple[str, ...]:
    shape = ", ".join("any" if axis in info.free_axes else str(size) for axis, size in enumerate(info.shape))
    grid = info.quantization
    scaled = ""
    if grid is not None and len(grid.scale) == 1:
        scaled = f"{grid.scale[0]:.6g} * (q - {grid.zero_point[0]})"
    elif grid is not None:
        scaled = f"{len(grid.scale)} scales along axis {grid.axis}"
    return role, info.name, info.dtype, f"[{shape}]", scaled
