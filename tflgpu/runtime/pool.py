"""Several inferences of one model in flight, in the manner of OpenVINO's ``AsyncInferQueue``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tflgpu.artifact.executable import Array
from tflgpu.runtime.input_check import Inputs, Outputs
from tflgpu.runtime.submission import Submission

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

# Requests of a pool that is given no number: one is copied in, one is computed, one is copied out, and one is in
# reserve.
REQUESTS = 4

Callback = Callable[[Submission, Any], object]


class Model(Protocol):
    """Protocol of the models of a pool."""

    def enqueue(self, inputs: Inputs, outputs: Outputs | None = None) -> Submission:
        """Start an inference.

        Args:
            inputs: As :meth:`tflgpu.CompiledModel.run` takes them.
            outputs: Arrays by name that take the results; None for new ones.
        """


class Pool:
    """Inferences of one model, some of them in flight at a time. Threads may share it; a context manager.

    Inferences begin in the order of the calls, on the model's one queue, so that variables change as by runs.

    Args:
        model: Of :func:`tflgpu.compile`. It has to stay open.
        requests: How many inferences may be in flight.

    Raises:
        ValueError: There is to be no request.
    """

    def __init__(self, model: Model, requests: int = REQUESTS) -> None:
        if requests < 1:
            raise ValueError(f"requests is {requests}; a pool has 1 or more")
        self._model, self._requests = model, requests
        self._callback: Callback | None = None
        self._free = threading.Semaphore(requests)
        self._starting = threading.Lock()  # so that results are kept in the order in which inferences begin
        self._changed = threading.Condition()
        self._in_flight = 0
        self._kept: list[Submission] = []
        self._error: BaseException | None = None
        self._starter: ThreadPoolExecutor | None = None

    def set_callback(self, function: Callback | None) -> None:
        """Choose what is called when an inference is over, in a thread of the model, in the order of the inferences.

        Args:
            function: Gets the submission, whose ``wait`` returns, or raises, at once, and the ``userdata`` of
                :meth:`start_async`. It must not call :meth:`start_async` or :meth:`wait_all`, which may wait for it.
                None: nothing is called, and :meth:`wait_all` returns the results.
        """
        self._callback = function

    def start_async(self, inputs: Inputs, userdata: Any = None, outputs: Outputs | None = None) -> Submission:
        """Start an inference. If all requests of the pool are in flight, wait until one of them is over.

        Args:
            inputs: As of :meth:`tflgpu.CompiledModel.run`; copied before this returns if they are on the host.
            userdata: For the callback.
            outputs: As of :meth:`tflgpu.CompiledModel.run`.

        Returns:
            The submission.

        Raises:
            TypeError: Inputs or outputs do not fit.
            ValueError: Inputs or outputs do not fit, or the model is closed.
            DeviceError: The device fails.
        """
        return self._start(inputs, outputs, self._callback, userdata, keep=self._callback is None)

    async def run(self, inputs: Inputs, outputs: Outputs | None = None) -> dict[str, Array]:
        """Run one inference in a coroutine of asyncio. The event loop goes on, also while no request is free.

        Args:
            inputs: As of :meth:`tflgpu.CompiledModel.run`. They must not change before the result is there.
            outputs: As of :meth:`tflgpu.CompiledModel.run`.

        Returns:
            What :meth:`tflgpu.CompiledModel.run` returns. The callback is not called.

        Raises:
            TypeError: Inputs or outputs do not fit.
            ValueError: Inputs or outputs do not fit, or the model is closed.
            DeviceError: The device fails.
        """
        import asyncio  # who awaits has these already; a start of others does without
        from concurrent.futures import ThreadPoolExecutor

        with self._changed:
            if self._starter is None:  # one thread: inferences begin in the order of the calls
                self._starter = ThreadPoolExecutor(1, "tflgpu-pool")
        start = partial(self._start, inputs, outputs, None, None, keep=False)
        return await (await asyncio.get_running_loop().run_in_executor(self._starter, start))

    def wait_all(self) -> list[dict[str, Array]]:
        """Wait until no inference is in flight, and until all callbacks have returned.

        Returns:
            Without a callback the results of :meth:`start_async` since the last call, in the order of the inferences;
            they are kept until then. Results that callbacks have got are left out.

        Raises:
            BaseException: The first error of an inference without a callback, or what a callback raised first, since
                the last call; SystemExit, for instance. All results are dropped then.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._in_flight)
            kept, self._kept = self._kept, []
            error, self._error = self._error, None
        results = [submission.wait() for submission in kept]
        if error is not None:
            raise error
        return results

    def is_ready(self) -> bool:
        """Whether a request is free, so that :meth:`start_async` would not wait for one."""
        return self._in_flight < self._requests

    def __len__(self) -> int:
        """How many inferences may be in flight."""
        return self._requests

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for all inferences, and raise as :meth:`wait_all` does unless another error ends the block."""
        try:
            self.wait_all()
        except Exception:
            if kind is None:
                raise
        finally:
            if self._starter is not None:
                self._starter.shutdown()

    def _start(
        self, inputs: Inputs, outputs: Outputs | None, callback: Callback | None, userdata: Any, *, keep: bool
    ) -> Submission:
        self._free.acquire()
        with self._changed:
            self._in_flight += 1
        try:
            with self._starting:
                submission = self._model.enqueue(inputs, outputs)
                if keep:
                    self._kept.append(submission)
                submission.add_done_callback(partial(self._over, callback, userdata))
        except BaseException:
            self._leave()
            raise
        return submission

    def _over(self, callback: Callback | None, userdata: Any, submission: Submission) -> None:
        try:
            if callback is not None:
                callback(submission, userdata)
        except BaseException as error:  # also SystemExit: wait_all raises it
            self._error = self._error or error
        finally:
            self._leave()

    def _leave(self) -> None:
        self._free.release()
        with self._changed:
            self._in_flight -= 1
            self._changed.notify_all()

    def __repr__(self) -> str:
        return f"<Pool of {self._requests} requests, {self._in_flight} in flight>"
