"""Tables that keep every digit, and one line a row unless a cell is prose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from tflgpu.model.text import printable

# Characters of a name that remain on a narrow terminal.
NAME_WIDTH = 16


class Name:
    """A text in one line: what does not fit is left out of its middle, for a name's end tells most."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self.width = text.cell_len

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        return Measurement(min(self.width, NAME_WIDTH), self.width)

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield shortened(self._text, options.max_width, "..." if options.ascii_only else "…")


def shortened(text: Text, width: int, gap: str = "…") -> Text:
    """``text`` in at most ``width`` columns: a third of them for its begin, the rest for its end."""
    if text.cell_len <= width:
        return text
    head = max(0, width - len(gap)) // 3
    tail = max(0, width - len(gap)) - head
    short = Text.assemble(text[:head], gap, text[len(text) - tail :])
    short.truncate(width)  # characters may be two columns wide
    return short


class Listing(Table):
    """A table of numbers, names and prose.

    On a terminal that is too narrow, names are shortened and prose is wrapped; numbers are whole in any case. A pipe
    gets everything, one line a row, without blanks at the end.

    right: columns of numbers. prose: columns whose cells are sentences. All others hold names.
    """

    def __init__(
        self, *columns: str, right: Sequence[str] = (), prose: Sequence[str] = (), title: str | None = None
    ) -> None:
        super().__init__(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
        self._heading = title
        self._prose = frozenset(prose)
        for column in columns:
            numeric = column in right
            least = cell_len(column) if numeric or column not in prose else NAME_WIDTH
            self.add_column(column, justify="right" if numeric else "left", no_wrap=numeric, min_width=least)

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of texts, which may have markup."""
        super().add_row(*map(self._cell, self.columns, cells), **options)

    def _cell(self, column: Column, cell: str) -> str | Name:
        if column.header in self._prose:
            return cell
        name = Name(Text.from_markup(printable(cell)))
        least = name.width if column.no_wrap else min(name.width, NAME_WIDTH)
        column.min_width = max(column.min_width or 0, least)
        return cell if column.no_wrap else name

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._heading:
            yield Text(printable(self._heading), "bold")
        rendered = super().__rich_console__(console, options)
        for line in Segment.split_lines(part for part in rendered if isinstance(part, Segment)):
            yield from _stripped(line)
            yield Segment.line()


def _stripped(line: list[Segment]) -> list[Segment]:
    """Return a line without the blanks at its end."""
    for last in range(len(line) - 1, -1, -1):
        text, style, control = line[last]
        if text.strip():
            return [*line[:last], Segment(text.rstrip(), style, control)]
    return []
