"""The group of all verbs: wrong commands as one line on stderr, like all other errors, and Ctrl-C at any time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from tflgpu.cli.console import print_error, reporting_errors
from tflgpu.cli.terminal.interrupt import answering_interrupts
from tflgpu.cli.terminal.logs import with_verbosity
from tflgpu.processes.command_start import answer_interrupts


def as_verb(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function as a verb: with -v and -q, and with its user's errors as one line on stderr."""
    return with_verbosity(reporting_errors(function))


class Verbs(TyperGroup):
    """A group of verbs. Exit code 2 for a command that cannot be understood."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Ctrl-C ends it with a message."""
        with answering_interrupts():
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line. A wrong use of it ends with a message and status 2."""
        answer_interrupts()
        given = args, prog_name, complete_var, False, windows_expand_args
        if not standalone_mode:
            return super().main(*given, **extra)
        try:
            code = super().main(*given, **extra)
        except typer.TyperException as error:
            if message := error.format_message():  # without a verb the help is printed already
                context = getattr(error, "ctx", None)
                advice = f"; see `{context.command_path} --help`" if context else ""
                print_error(message.rstrip(".") + advice)
            sys.exit(error.exit_code)
        except typer.Abort:
            sys.exit(1)
        sys.exit(code or 0)
