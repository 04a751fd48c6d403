"""Everything the verbs print goes through here: styles, tables, JSON, errors."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from tflgpu.errors import (
    BuildError,
    CacheWarning,
    DeviceWarning,
    FallbackWarning,
    PluginWarning,
    TflgpuError,
    UnsupportedError,
)
from tflgpu.model.text import printable, printable_lines

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


LOGGER = logging.getLogger("tflgpu")

# The errors that a user can do something about.
REPORTED = (TflgpuError, OSError, ValueError, MemoryError)

WARNINGS = (CacheWarning, DeviceWarning, FallbackWarning, PluginWarning)

# Characters of a compiler's log that an error shows.
LOG = 200

# Columns of a pipe: more than any line has.
PIPE = 1 << 20


class _Console(Console):
    """A terminal gets lines that fit it, broken between words only; a pipe gets them whole.

    Control characters, which names of files and cache entries may have, are shown: the terminal would obey them.
    """

    @property
    def options(self) -> ConsoleOptions:
        chosen = self._width is not None  # by COLUMNS
        return super().options if chosen or self.is_terminal else super().options.update(width=PIPE)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*objects, **{"crop": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable_lines(text), **options)


# Highlighting would colour every number; here colour means something.
console = _Console(highlight=False)

# The console for everything that is no data: messages, warnings, errors and progress.
messages = _Console(stderr=True, highlight=False)


def reporting_errors(verb: Callable[..., None]) -> Callable[..., None]:
    """``verb``, with every error that its user can do something about as one line on stderr and exit code 1.

    The line names the model, if the verb has one and the error names no file.
    """

    @wraps(verb)
    def reported(*args: Any, **kwargs: Any) -> None:
        try:
            with warnings.catch_warnings():
                for category in WARNINGS:  # whatever PYTHONWARNINGS says
                    warnings.simplefilter("always", category)
                warnings.showwarning = lambda message, *_: print_warning(str(message))
                verb(*args, **kwargs)
        except BrokenPipeError:  # the reader of our output has had enough; typer knows what to do
            raise
        except REPORTED as error:
            message = message_of(error)
            if not message.startswith("--") and not any(path in message for path in _paths(kwargs.values())):
                message = ": ".join((*_paths([kwargs.get("model")]), message))
            print_error(message)
            raise typer.Exit(1) from error

    return reported


def _paths(arguments: Iterable[Any]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Path):
            yield str(argument)
        elif isinstance(argument, list):
            yield from _paths(argument)


def print_error(message: str) -> None:
    """On stderr."""
    messages.print(Text.assemble(("error:", "bold red"), " ", printable(message)))


def print_warning(message: str) -> None:
    """On stderr, unless -q forbids it."""
    if LOGGER.isEnabledFor(logging.WARNING):
        messages.print(Text.assemble(("warning:", "bold yellow"), " ", printable_lines(message)))


def message_of(error: Exception) -> str:
    """Return what an error says, in one line."""
    match error:
        case UnsupportedError():
            more = f" (and {len(error.reasons) - 1} more)" if len(error.reasons) > 1 else ""
            return f"the model cannot run on the device: {error.reasons[0]}{more}; `tflgpu inspect` lists every reason"
        case BuildError():
            return f"{error.message}: {' '.join(error.log.split())[:LOG]}; `tflgpu show --stage source` prints it"
        case OSError(filename=str() | Path() as name):
            return f"{name}: {error.strerror}"
        case MemoryError():
            return f"the memory is not enough: {error}"
        case _:
            return str(error)


def note(message: str) -> None:
    """Tell on stderr what was done, unless -q forbids it: stdout is for data."""
    if LOGGER.isEnabledFor(logging.WARNING):
        messages.print(Text(printable(message)))


def print_json(data: object) -> None:
    """Print ``data`` as JSON on stdout."""
    console.out(json.dumps(_plain(data), indent=2, allow_nan=False), highlight=False)


def picked(value: object, *names: str) -> dict[str, Any]:
    """Attributes of an object by their names, for JSON."""
    return {name: getattr(value, name) for name in names}


def _plain(value: Any) -> Any:
    """``value`` as json takes it: paths as text; NaN and infinities, which JSON has not, as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return str(value) if isinstance(value, PathLike) else value
