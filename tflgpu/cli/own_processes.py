"""Work in processes of their own: what one of them does to itself, a crash of a driver included, stays there."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, Generic, NamedTuple, TypeVar

from tflgpu.cli.console import REPORTED
from tflgpu.errors import TflgpuError

LOGGER = logging.getLogger("tflgpu")

T = TypeVar("T")


class ProcessDied(TflgpuError):
    """A process ended without an answer."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A function's result, and the warnings that it gave on its way."""

    value: T
    warnings: tuple[str, ...]


def in_own_process(function: Callable[..., T], *arguments: Any) -> Answer[T]:
    """Call a function of a module in a new interpreter, which has imported, opened and cached nothing yet.

    Raises what a user can do something about (``REPORTED``) as the function did, and ProcessDied if the process ended
    otherwise.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    level = LOGGER.getEffectiveLevel()
    process = context.Process(target=_answer, args=(sender, level, function, arguments), daemon=True)
    resource_tracker.ensure_running()  # which process.start() would do, and lets interrupts through again
    with _interrupts_blocked():  # Ctrl-C is for the process that asked, which ends this one
        process.start()
    sender.close()  # so that the end of the process is the end of the pipe
    try:
        while isinstance(answer := receiver.recv(), _Logged):
            LOGGER.log(answer.level, "%s", answer.message)
    except EOFError:
        process.join()
        raise ProcessDied(f"its process ended with exit code {process.exitcode}") from None
    except KeyboardInterrupt:
        process.kill()
        raise
    finally:
        receiver.close()
    process.join()
    if isinstance(answer, Exception):
        raise answer
    result: Answer[T] = answer
    return result


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Open what is started while this is open never gets a SIGINT, on systems whose processes inherit such a thing."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_processes() -> None:
    """End all that are at work."""
    for process in multiprocessing.active_children():
        process.kill()


class _Logged(NamedTuple):
    level: int
    message: str


class _Relay(logging.Handler):
    """Sends what is logged to the process that asked, where it belongs to the thread that asked."""

    def __init__(self, sender: Connection) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        self._sender.send(_Logged(record.levelno, record.getMessage()))


def _answer(sender: Connection, level: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    LOGGER.setLevel(level)
    LOGGER.addHandler(_Relay(sender))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            value = function(*arguments)
        except REPORTED as error:
            sender.send(error)
            return
    sender.send(Answer(value, tuple(str(w.message) for w in caught)))
