"""Cases in processes of their own: one that crashes or hangs costs that case, not the run."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from types import TracebackType

from tests.conformance.cases import Entry, load
from tests.conformance.judge import Precision
from tests.conformance.outcome import Outcome, run_case

Job = tuple[Entry, Precision]
Runner = Callable[[Entry, Precision, str], Outcome]

CASE_SECONDS = 60.0  # a case takes a fraction of one; this is for drivers that never come back


def run_entry(entry: Entry, precision: Precision, device: str) -> Outcome:
    return run_case(load(entry), precision, device)


class Worker:
    """A process that runs one case after another; replaced when it dies or takes more than ``limit`` seconds.

    ``runner`` is what it does with a case: a function that a new process can import.
    """

    def __init__(self, device: str, limit: float = CASE_SECONDS, runner: Runner = run_entry) -> None:
        self.device, self.limit, self.runner = device, limit, runner
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def run(self, entry: Entry, precision: Precision) -> Outcome:
        """Never raises for what a case does."""
        pipe = self._started()
        try:
            pipe.send((entry, precision))
            if pipe.poll(self.limit):
                outcome: Outcome = pipe.recv()
                return outcome
            reason = f"no answer after {self.limit:g} s"
        except (EOFError, ConnectionError):
            reason = f"the process died with exit code {self._exit_code()}"
        self.close()
        return Outcome("error", reason, self.limit)

    def close(self) -> None:
        """End the process; a later run starts another."""
        if self._process is not None and self._pipe is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._pipe.close()
        self._process = self._pipe = None

    def _started(self) -> Connection:
        if self._pipe is None:
            # Not forked: an OpenCL runtime does not survive that.
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self.device, self.runner), daemon=True)
            self._process.start()
            theirs.close()  # so that the death of the process is the end of the pipe
        return self._pipe

    def _exit_code(self) -> int | None:
        assert self._process is not None
        self._process.join()
        return self._process.exitcode

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run_all(jobs: Sequence[Job], device: str, processes: int) -> Iterator[Outcome]:
    """The outcome of each job, in order, as soon as it is known."""
    with ExitStack() as stack:
        idle: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(processes):
            idle.put(stack.enter_context(Worker(device)))

        def run(job: Job) -> Outcome:
            worker = idle.get()
            try:
                return worker.run(*job)
            finally:
                idle.put(worker)

        threads = stack.enter_context(ThreadPoolExecutor(processes))
        yield from threads.map(run, jobs)


def _serve(pipe: Connection, device: str, runner: Runner) -> None:
    while True:
        try:
            entry, precision = pipe.recv()
        except EOFError:  # the parent is gone
            return
        pipe.send(runner(entry, precision, device))
