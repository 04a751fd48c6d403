"""LiteRT in a guarded process: where it crashes, hangs or takes too much memory, that process ends, not this one."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tflgpu.fallback import litert_interpreter
from tflgpu.fallback.litert_interpreter import REFUSALS, Array, Place
from tflgpu.processes import ServerProcess, can_run, end_in_words

Task = Literal["shapes", "prepare", "run"]

SERVER = Path(litert_interpreter.__file__)

# Until the process has imported numpy and LiteRT.
START_SECONDS = 60.0

# These settings make glibc end a process that frees a block after a write past its end. Other C libraries ignore them.
PRELOADED = (os.environ.get("LD_PRELOAD"), "libc_malloc_debug.so.0")
MALLOC_CHECKS = {"LD_PRELOAD": ":".join(filter(None, PRELOADED)), "MALLOC_CHECK_": "3"}


class RefusedError(ValueError):
    """LiteRT refuses, in its words."""


class CrashedError(Exception):
    """The process crashed, took too long or had no memory left. ``timed_out``: whether it took too long."""

    def __init__(self, end: str, timed_out: bool) -> None:
        super().__init__(end)
        self.timed_out = timed_out


class GuardedProcess:
    """A process of its own for LiteRT, which starts with the first request. A context manager.

    Where no process can be started, as in a program without a Python interpreter of its own, this process does what is
    asked.
    """

    def __init__(self, seconds: float | None) -> None:
        """seconds: the limit for one request; with None this process does what is asked, without any limit."""
        self.seconds = seconds
        self._server: ServerProcess | None = None
        self._possible = seconds is not None

    def ask(
        self,
        task: Task,
        model: bytes,
        inputs: Sequence[Array] = (),
        *,
        is_open: bool = False,
        place: Place | None = None,
    ) -> Any:
        """Let LiteRT do a task, as :func:`tflgpu.fallback.litert_interpreter.perform` does.

        Args:
            task: Shapes of results, preparing or running.
            model: The file of a partition.
            inputs: For a run, in the order of the partition's inputs.
            is_open: Whether only a run can tell the shape of an input.
            place: Of a user's whole file, the signature.

        Returns:
            The result of ``perform``.

        Raises:
            RefusedError: LiteRT refuses.
            CrashedError: The process crashed or took too long.
        """
        server = self._started()
        if server is None or self.seconds is None:
            try:
                return litert_interpreter.perform(task, model, inputs, is_open, place)
            except REFUSALS as refusal:
                raise RefusedError(str(refusal)) from refusal
        return self._request(server, {"task": task, "is_open": is_open, "place": place}, model, inputs)[0]

    def judge(
        self, model: bytes, sets: Sequence[Mapping[int, Array]], outputs: Sequence[int], steps: int
    ) -> list[Array] | None:
        """Let LiteRT run a model, as :func:`tflgpu.fallback.litert_interpreter.judged_runs` does.

        Args:
            model: The file.
            sets: Values by tensor of the main subgraph, for each of several runs.
            outputs: The tensors whose values are wanted.
            steps: How often each set is run.

        Returns:
            The result of ``judged_runs``; None where no process can be started.

        Raises:
            RefusedError: LiteRT refuses.
            CrashedError: The process crashed or took too long.
        """
        server = self._started()
        if server is None:
            return None
        request = {"task": "judge", "tensors": list(sets[0]), "outputs": outputs, "steps": steps}
        return self._request(server, request, model, [array for each in sets for array in each.values()])[1]

    def extremes(self, model: bytes, inputs: Mapping[int, Array], limit: float) -> dict[str, float]:
        """Let LiteRT run a model, as :func:`tflgpu.fallback.litert_interpreter.extremes` does.

        Args:
            model: The file.
            inputs: Values by tensor of the main subgraph.
            limit: The largest magnitude that is not remarkable.

        Returns:
            The result of ``extremes``; nothing where no process can be started.

        Raises:
            RefusedError: LiteRT refuses.
            CrashedError: The process crashed or took too long.
        """
        server = self._started()
        if server is None:
            return {}
        request = {"task": "extremes", "tensors": list(inputs), "limit": limit}
        return dict(self._request(server, request, model, list(inputs.values()))[0])

    def _started(self) -> ServerProcess | None:
        """Return the process, which the first request starts; None where there can be none."""
        if self._possible and self._server is None:
            self._server = _start()
            self._possible = self._server is not None
        return self._server

    def _request(
        self, server: ServerProcess, request: dict[str, Any], model: bytes, inputs: Sequence[Array]
    ) -> tuple[Any, list[Array]]:
        """Return the answer to a request, and the arrays with it. Raises RefusedError, CrashedError."""
        assert self.seconds is not None
        request |= {
            "seconds": self.seconds,
            "model": len(model),
            "inputs": [(a.dtype.str, a.shape) for a in inputs],
        }
        parts = [json.dumps(request).encode() + b"\n", model, *(a.tobytes() for a in inputs)]
        try:
            reply = _reply(server, self.seconds, parts)
            arrays = [_array(server, *each) for each in reply.get("arrays", ())]
        except BaseException:  # an interrupt, too: its answer would be taken for that of the next request
            self.close()
            raise
        if "crash" in reply:
            raise CrashedError(reply["crash"], timed_out=False)
        if "refusal" in reply:
            raise RefusedError(reply["refusal"])
        return reply["answer"], arrays

    def close(self) -> None:
        """End the process; the next request starts another one."""
        if self._server is not None:
            self._server.end()
            self._server = None

    def __enter__(self) -> GuardedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start() -> ServerProcess | None:
    """Return a new process, ready for requests; None where none can be started. Raises CrashedError if it starts too
    late."""
    if not can_run(SERVER):
        return None
    # The modules are found where this process finds them. LiteRT's arithmetic is not numpy's, whose threads would
    # double the time to start.
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", **MALLOC_CHECKS}
    try:
        server = ServerProcess(["-S", "-P", str(SERVER)], environment)
        _reply(server, START_SECONDS)
    except OSError:
        return None
    except CrashedError as error:
        if error.timed_out:  # on a busy machine; what may crash is not to run here for that
            raise
        return None
    return server


def _array(server: ServerProcess, dtype: str, shape: Sequence[int]) -> Array:
    """Return an array that follows a reply. Raises CrashedError if the process ends before."""
    content = server.replies.read(np.dtype(dtype).itemsize * prod(shape))
    try:
        return np.frombuffer(content, dtype).reshape(shape)
    except ValueError:
        raise CrashedError("ended while it replied", timed_out=False) from None


def _reply(server: ServerProcess, seconds: float, parts: Sequence[bytes] = ()) -> dict[str, Any]:
    """Write a request and read the reply to it.

    Args:
        server: The process.
        seconds: The limit; the process is killed after it.
        parts: The bytes of the request; without any the process says that it is ready.

    Returns:
        The reply.

    Raises:
        CrashedError: The process ended before it replied.
    """
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
        return dict(json.loads(line))
    except ValueError:
        server.kill()
        code = server.wait()
        end_of_it = f"did not end within {seconds:g} s" if late.is_set() else end_in_words(code)
        raise CrashedError(end_of_it, late.is_set()) from None
