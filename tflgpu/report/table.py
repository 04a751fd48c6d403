"""Tables as text, for terminals, and as HTML, for notebooks; that of a model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tflgpu.model.tensor_info import TensorInfo


@dataclass(frozen=True)
class Table:
    """Rows of cells under a title.

    right: headers of the columns whose cells end at the right. notes: lines below.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[str] = ()
    notes: Sequence[str] = ()

    def text(self) -> str:
        """Columns as wide as their cells."""
        lines = [self.headers, *self.rows]
        widths = [max(len(line[number]) for line in lines) for number in range(len(self.headers))]
        placed = [
            "  ".join(
                cell.rjust(width) if header in self.right else cell.ljust(width)
                for cell, width, header in zip(line, widths, self.headers, strict=True)
            ).rstrip()
            for line in lines
        ]
        return "\n".join((self.title, *placed, *self.notes))

    def html(self) -> str:
        """Return a table element, and a paragraph for each note. What the cells say is escaped."""
        from html import escape  # a start does without

        aligned = [' style="text-align: right"' if header in self.right else "" for header in self.headers]
        head = "".join(f"<th{how}>{escape(cell)}</th>" for cell, how in zip(self.headers, aligned, strict=True))
        body = "".join(
            "<tr>" + "".join(f"<td{how}>{escape(c)}</td>" for c, how in zip(row, aligned, strict=True)) + "</tr>"
            for row in self.rows
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


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
