"""LiteRT behind glass: what it does with a model, in a process that may crash or hang in place of this one."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from tflgpu.litert import cpu_executor
from tflgpu.litert.cpu_executor import REFUSALS, Array

if TYPE_CHECKING:
    import subprocess

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
        import subprocess  # a warm start does without

        # The modules are found where this process finds them. LiteRT's arithmetic is not numpy's, whose threads would
        # double the time to start.
        paths = [path for path in sys.path if path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1", **MALLOC_CHECKS}
        self._popen = subprocess.Popen(
            [sys.executable, "-S", "-P", str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self.end = weakref.finalize(self, _end, self._popen, os.getpid())
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
        process = self._popen
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        clock = threading.Timer(seconds, end)
        clock.daemon = True
        clock.start()
        try:
            for part in parts:
                process.stdin.write(part)
            if parts:
                process.stdin.flush()
            line = process.stdout.readline()
        except OSError:  # it ended before it had read everything
            line = b""
        finally:
            clock.cancel()
        try:
            reply = json.loads(line)
        except ValueError:
            process.kill()
            code = process.wait()
            end_of_it = f"did not end within {seconds:g} s" if late.is_set() else _description(code)
            raise DiedError(end_of_it, late.is_set()) from None
        return dict(reply)


def _start() -> _Process | None:
    """A new process; None where none can be started."""
    if not sys.executable or getattr(sys, "frozen", False) or not SERVER.is_file():
        return None
    try:
        return _Process()
    except (OSError, DiedError):
        return None


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # a fork of the process that started it
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # for what it has not read
                pipe.close()


def _description(code: int) -> str:
    """How a process ended, by its exit code."""
    if code >= 0:
        return f"ended its process with exit code {code}"
    try:
        return f"crashed ({signal.Signals(-code).name})"
    except ValueError:
        return f"crashed (signal {-code})"
