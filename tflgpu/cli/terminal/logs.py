"""How much is said on stderr: -v and -q, before the verb or after it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, cleandoc, signature
from typing import Annotated, Any

import typer
from rich.text import Text

from tflgpu.cli.console import messages
from tflgpu.model.text import printable

LOGGER = logging.getLogger("tflgpu")

# -q: errors alone. Else also warnings, notes and progress; with -v what is done; with -vv all details of it.
QUIET, LEVELS = logging.ERROR, (logging.WARNING, logging.INFO, logging.DEBUG)

Verbose = Annotated[
    int,
    typer.Option(
        "--verbose", "-v", count=True, show_default=False, help="Log what is done on stderr; -vv with all details."
    ),
]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No warnings, notes or progress on stderr.")]


class _Lines(logging.Handler):
    """Prints what is logged, each line with the seconds since the process began."""

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.relativeCreated / 1e3:8.3f} s  {printable(record.getMessage())}"
        messages.print(Text(line, "dim"))


_LINES = _Lines()


def set_verbosity(verbose: int, quiet: bool) -> None:
    """Let messages of a level and above be printed on stderr."""
    LOGGER.setLevel(QUIET if quiet else LEVELS[min(verbose, len(LEVELS) - 1)])
    LOGGER.removeHandler(_LINES)
    if verbose:
        LOGGER.addHandler(_LINES)


def with_verbosity(verb: Callable[..., None]) -> Callable[..., None]:
    """``verb`` with the options -v and -q, which count for more than those before its name."""

    @wraps(verb)
    def spoken(*args: Any, verbose: int, quiet: bool, **kwargs: Any) -> None:
        if verbose or quiet:
            set_verbosity(verbose, quiet)
        verb(*args, **kwargs)

    own = (
        Parameter("verbose", Parameter.KEYWORD_ONLY, default=0, annotation=Verbose),
        Parameter("quiet", Parameter.KEYWORD_ONLY, default=False, annotation=Quiet),
    )
    declared = signature(verb, eval_str=True)
    spoken.__signature__ = declared.replace(parameters=[*declared.parameters.values(), *own])  # type: ignore[attr-defined]
    paragraphs = cleandoc(verb.__doc__ or "").split("\n\n")
    spoken.__doc__ = "\n\n".join(" ".join(each.split()) for each in paragraphs)  # help breaks lines by itself
    return spoken
