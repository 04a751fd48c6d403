"""Everything the verbs print goes through here: styles, tables, JSON, errors."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from math import isfinite
from os import PathLike
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tflgpu.errors import FallbackWarning, TflgpuError, UnsupportedError

# Highlighting would colour every number; here colour means something.
console = Console(highlight=False)

_errors = Console(stderr=True, highlight=False)


def reporting_errors(verb: Callable[..., None]) -> Callable[..., None]:
    """``verb``, with every error that its user can do something about as one line on stderr and exit code 1."""

    @wraps(verb)
    def reported(*args: Any, **kwargs: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", FallbackWarning)
                warnings.showwarning = _warn  # type: ignore[assignment]
                verb(*args, **kwargs)
        except BrokenPipeError:  # the reader of our output has had enough; typer knows what to do
            raise
        except (TflgpuError, OSError, ValueError) as error:
            _errors.print(Text.assemble(("error:", "bold red"), " ", _message(error)), soft_wrap=True)
            raise typer.Exit(1) from error

    return reported


def _warn(message: Warning | str, *_: Any) -> None:
    _errors.print(Text.assemble(("warning:", "bold yellow"), " ", str(message)), soft_wrap=True)


def _message(error: Exception) -> str:
    if isinstance(error, UnsupportedError):
        more = f" (and {len(error.reasons) - 1} more)" if len(error.reasons) > 1 else ""
        return f"the model cannot run on the device: {error.reasons[0]}{more}; `tflgpu inspect` lists every reason"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def table(*columns: str, right: Sequence[str] = (), title: str | None = None) -> Table:
    """An empty table in the style of all tables; the columns named in ``right`` hold numbers."""
    result = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in columns:
        numeric = column in right
        result.add_column(column, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    return result


def print_json(data: object) -> None:
    """``data`` as JSON on stdout."""
    console.out(json.dumps(_plain(data), indent=2, allow_nan=False), highlight=False)


def _plain(value: Any) -> Any:
    """``value`` as json takes it: paths as text; NaN and infinities, which JSON has not, as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if isfinite(value) else None
    return str(value) if isinstance(value, PathLike) else value
