"""LiteRT in a process of its own, which may crash or hang in place of this one."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from tflgpu.litert import cpu_executor
from tflgpu.litert.cpu_executor import REFUSALS, Array
from tflgpu.processes.server_process import ServerProcess, can_run, end_in_words

Task = Literal["shapes", "prepare", "run"]

SERVER = Path(cpu_executor.__file__)

# Until the process has imported numpy and LiteRT. That takes 0.1 s where nothing else runs.
START_SECONDS = 60.0


# glibc ends the process where a block is freed that was written past its end. Elsewhere nothing listens to these.
PRELOADED = (os.environ.get("LD_PRELOAD"), "libc_malloc_debug.so.0")
MALLOC_CHECKS = {"LD_PRELOAD": ":".join(filter(None, PRELOADED)), "MALLOC_CHECK_": "3"}


class RefusedError(ValueError):
    """LiteRT says why it cannot do it."""


class DiedError(Exception):
    """The process ended, was ended or had no memory left. ``timed_out``: because it took too long."""

    def __init__(self, end: str, timed_out: bool) -> None:
        super().__init__(end)
        self.timed_out = timed_out


class Trial:
    """Asks LiteRT in a process of its own, which starts with the first question. A context manager.

    seconds: for one question; None: LiteRT is asked in this process, without any limit. Where no process can be
    started, as in a program without a Python interpreter of its own, LiteRT is asked in this one, too.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._process: _Process | None = None
        self._possible = seconds is not None

    def ask(self, task: Task, model: bytes, inputs: Sequence[Array] = (), *, is_open: bool = False) -> Any:
        """The answer of :func:`tflgpu.litert.cpu_executor.perform`.

        Raises RefusedError with LiteRT's words, DiedError if the process crashed or took too long.
        """
        if self._possible and self._process is None:
            self._process = _start()
            self._possible = self._process is not None
        if self._process is None or self.seconds is None:
            try:
                return cpu_executor.perform(task, model, inputs, is_open)
            except REFUSALS as refusal:
                raise RefusedError(str(refusal)) from refusal
        try:
            reply = self._process.ask(self.seconds, task, model, inputs, is_open)
        except BaseException:  # an interrupt, too: its answer would be taken for that of the next question
            self.close()
            raise
        if "death" in reply:
            raise DiedError(reply["death"], timed_out=False)
        if "refusal" in reply:
            raise RefusedError(reply["refusal"])
        return reply["answer"]

    def close(self) -> None:
        """End the process; the next question starts another one."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Process:
    """Raises OSError if it cannot be started, DiedError if it is not ready in time."""

    def __init__(self) -> None:
        # The modules are found where this process finds them. LiteRT's arithmetic is not numpy's, whose threads would
        # double the time to start.
        paths = [path for path in sys.path if path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1", **MALLOC_CHECKS}
        self._server = ServerProcess(["-S", "-P", str(SERVER)], environment)
        self.end = self._server.end
        self._reply(START_SECONDS)

    def ask(self, seconds: float, task: Task, model: bytes, inputs: Sequence[Array], is_open: bool) -> dict[str, Any]:
        request = {
            "task": task,
            "seconds": seconds,
            "is_open": is_open,
            "model": len(model),
            "inputs": [(a.dtype.str, a.shape) for a in inputs],
        }
        parts = [json.dumps(request).encode() + b"\n", model, *(a.tobytes() for a in inputs)]
        return self._reply(seconds, parts)

    def _reply(self, seconds: float, parts: Sequence[bytes] = ()) -> dict[str, Any]:
        """Write a request and read the reply to it. Raises DiedError."""
        server = self._server
        late = threading.Event()

        def end() -> None:
            late.set()
            server.kill()

        clock = threading.Timer(seconds, end)
        clock.daemon = True
        clock.start()
        try:
            for part in parts:
                server.requests.write(part)
            if parts:
                server.requests.flush()
            line = server.replies.readline()
        except OSError:  # it ended before it had read everything
            line = b""
        finally:
            clock.cancel()
        try:
            reply = json.loads(line)
        except ValueError:
            server.kill()
            code = server.wait()
            end_of_it = f"did not end within {seconds:g} s" if late.is_set() else end_in_words(code)
            raise DiedError(end_of_it, late.is_set()) from None
        return dict(reply)


def _start() -> _Process | None:
    """A new process; None where none can be started."""
    try:
        return _Process() if can_run(SERVER) else None
    except (OSError, DiedError):
        return None
