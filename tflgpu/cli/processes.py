"""Work in processes of their own: what one of them does to itself, a crash of a driver included, stays there."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from tflgpu.cli.console import REPORTED
from tflgpu.errors import TflgpuError

T = TypeVar("T")


class ProcessDied(TflgpuError):
    """A process ended without an answer."""


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What a function returned, and the warnings that it gave on its way."""

    value: T
    warnings: tuple[str, ...]


def in_own_process(function: Callable[..., T], *arguments: Any) -> Answer[T]:
    """Call a function of a module in a new interpreter, which has imported, opened and cached nothing yet.

    Raises what a user can do something about (``REPORTED``) as the function did, and ProcessDied if the process ended
    otherwise.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, arguments), daemon=True)
    process.start()
    sender.close()  # so that the end of the process is the end of the pipe
    try:
        answer: Answer[T] | Exception = receiver.recv()
    except EOFError:
        process.join()
        raise ProcessDied(f"its process ended with exit code {process.exitcode}") from None
    finally:
        receiver.close()
    process.join()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _answer(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            value = function(*arguments)
        except REPORTED as error:
            sender.send(error)
            return
    sender.send(Answer(value, tuple(str(w.message) for w in caught)))
