"""The group of all verbs: wrong commands as one line on stderr, Ctrl-C at any time, and how much is said."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from inspect import Parameter, cleandoc, signature
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text
from typer.core import TyperGroup

from tflgpu.cli.console import messages, print_error, reporting_errors
from tflgpu.model.text import printable
from tflgpu.processes import answer_interrupts

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


# Seconds until the main thread is woken, in case another one got the signal, and until the user is told.
NUDGE, PATIENCE = 0.05, 0.7

WAITING = "waiting for the driver to return; Ctrl-C again ends at once"
STOPPING = "stopping; Ctrl-C again ends at once"

# The exit code that shells give: 128 and the number of the signal.
EXIT_CODE = 128 + signal.SIGINT


@contextmanager
def answering_interrupts() -> Iterator[None]:
    """While this is open, Ctrl-C ends the process, as it ends what shells run: by the signal.

    Python itself would first wait for the threads in which a driver compiles. And it answers a signal only between two
    of its own instructions, so that a thread has to look whether a call of a driver is in the way. Nothing is done
    where signals are not for Python: in other threads than the main one, in what a shell runs in the background, and
    on systems without signals for threads.
    """
    main = threading.current_thread() is threading.main_thread()
    mine = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not mine or not hasattr(signal, "pthread_kill"):
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    answered = threading.Event()

    def answer(*_: object) -> None:
        if not answered.is_set():
            answered.set()
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, answer)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, answered), name="tflgpu-interrupt", daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        _end()
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(writer)


def _watch(reader: int, answered: threading.Event) -> None:
    """See to the interrupts until the pipe is closed; it has the number of each signal, ours too."""
    told = threading.Event()

    def tell() -> None:
        told.set()
        messages.print(STOPPING if answered.is_set() else WAITING)

    timer = threading.Timer(PATIENCE, tell)
    timer.daemon = True
    with os.fdopen(reader, "rb", buffering=0) as numbers:
        while number := numbers.read(1):
            if number[0] != signal.SIGINT:
                continue
            if told.is_set():
                messages.show_cursor()
                os._exit(EXIT_CODE)
            if (
                timer.ident is None
            ):  # the first one; until the user is told, others may be handed on by a program around
                timer.start()
                if not answered.wait(NUDGE):
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _end() -> NoReturn:
    with suppress(OSError):
        sys.stdout.flush()
    messages.print("interrupted")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    os._exit(EXIT_CODE)  # where the signal does not end a process


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
