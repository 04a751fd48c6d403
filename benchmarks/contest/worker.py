"""A contender's process, so that a crash or a hang costs only its own rows."""

from __future__ import annotations

import multiprocessing
import os
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.contest.case import Case
from benchmarks.contest.contender import Skipped

PATIENCE = 180  # seconds to wait for an answer; torch.compile takes longest


class Worker:
    """A process with the contenders of one module of benchmarks.engines for one case.

    labels: name and metric of each contender, once it is prepared.
    """

    def __init__(self, module: str, case: Case) -> None:
        self.module, self.case = module, case
        self.labels: list[tuple[str, str]] = []
        context = multiprocessing.get_context("spawn")
        self._connection, self._theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._theirs, self.module, case))

    def prepare(self) -> None:
        """Start the process and wait for its contenders. Raises Skipped if it has none."""
        self._process.start()
        self._theirs.close()  # so that the pipe ends with the process
        self.labels = self._answer()

    def ask(self, contender: int, what: str, *arguments: object) -> Any:
        """Call function ``what`` of a contender, by number; None if it has no such function. Raises Skipped."""
        try:
            self._connection.send((contender, what, arguments))
        except OSError:
            raise Skipped("its process has ended") from None
        return self._answer()

    def close(self) -> None:
        """Kill the process: a driver may hang in it, so that it would not end by itself."""
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self._connection.close()

    def _answer(self) -> Any:
        try:
            if not self._connection.poll(PATIENCE):
                self._process.kill()
                raise Skipped(f"no answer within {PATIENCE} s")
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            raise Skipped(f"its process ended with exit code {self._process.exitcode}") from None
        if isinstance(answer, Skipped):
            raise answer
        return answer


def _serve(connection: Connection, module: str, case: Case) -> None:
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # only rows go to stdout
    try:
        found = import_module(module).contenders(case)
    except Exception as error:
        connection.send(_reason(error))
        return
    connection.send([(c.name, c.metric) for c in found])
    while True:
        try:
            number, what, arguments = connection.recv()
        except EOFError:
            return
        try:
            function = getattr(found[number], what)
            connection.send(function(*arguments) if function else None)
        except Exception as error:
            connection.send(_reason(error))


def _reason(error: Exception) -> Skipped:
    if isinstance(error, Skipped):
        return error
    return Skipped(f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])
