"""Jobs in processes of their own: one that crashes, hangs or takes all memory costs that job, not the run."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, BinaryIO, Generic, Literal, TypeVar

from tflgpu.errors import TflgpuError

Kind = Literal["answer", "public error", "foreign exception", "death", "hang", "memory"]
Job = TypeVar("Job")
Worker = TypeVar("Worker")
Result = TypeVar("Result")

MEMORY = 4 << 30  # bytes that a job may take besides what its process has already
START_SECONDS = 120.0  # for imports and devices on a busy machine
TAIL = 4000  # characters of what a process printed last


@dataclass(frozen=True)
class Fate:
    """The fate of a job.

    value: what the function returned. text: a line on what went wrong: of an error its type and message. details: of an
    exception the traceback; of a death or a hang what the process printed last, with the Python stack of every thread.
    """

    kind: Kind
    value: Any = None
    text: str = ""
    details: str = ""
    seconds: float = 0.0


class Sandbox(Generic[Job]):
    """A process that calls ``function`` with one job after another; replaced when it dies or takes too long.

    function, prepare: functions of modules, so that a new process can import them. ``prepare`` is called first in each
    process and is not limited: it opens devices, for instance.
    seconds, memory: limits of one job, in seconds and bytes of address space; no memory limit if None.
    public: exceptions that ``function`` may raise.
    """

    def __init__(
        self,
        function: Callable[[Job], Any],
        *,
        seconds: float,
        memory: int | None = MEMORY,
        public: tuple[type[Exception], ...] = (TflgpuError,),
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self.seconds = seconds
        self._setup = _Setup(function, memory, public, prepare)
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._printed: BinaryIO | None = None

    def run(self, job: Job) -> Fate:
        """Never raises for what a job does."""
        begin = time.perf_counter()
        try:
            pipe = self._started()
            begin = time.perf_counter()
            pipe.send((job, self.seconds))
            if pipe.poll(self.seconds):
                fate: Fate = pipe.recv()
                return replace(fate, seconds=time.perf_counter() - begin)
            fate = Fate("hang", None, f"no answer after {self.seconds:g} s", self._tail(), self.seconds)
        except (EOFError, ConnectionError):
            kind, cause = self._death()
            text = f"the process died with {cause}"
            fate = Fate(kind, None, text, self._tail(), time.perf_counter() - begin)
        self.close()
        return fate

    def close(self) -> None:
        """End the process; a later run starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        for opened in (self._pipe, self._printed):
            if opened is not None:
                opened.close()
        self._process = self._pipe = self._printed = None

    def _started(self) -> Connection:
        if self._pipe is None:
            # Not forked: an OpenCL runtime does not survive that.
            context = multiprocessing.get_context("spawn")
            self._printed = tempfile.NamedTemporaryFile(prefix="sandbox-")  # noqa: SIM115  # close() closes it
            self._pipe, theirs = context.Pipe()
            arguments = theirs, self._printed.name, self._setup
            self._process = context.Process(target=_serve, args=arguments, daemon=True)
            self._process.start()
            theirs.close()  # so that the death of the process is the end of the pipe
            seconds = max(START_SECONDS, self.seconds)
            if not self._pipe.poll(seconds):
                raise TimeoutError(f"a process for jobs did not start in {seconds:g} s\n{self._tail()}")
            self._pipe.recv()
        return self._pipe

    def _death(self) -> tuple[Kind, str]:
        assert self._process is not None
        self._process.join()
        code = self._process.exitcode or 0
        if code >= 0:
            return "death", f"exit code {code}"
        # Nobody else kills it but the kernel that has no more memory.
        return "memory" if code == -signal.SIGKILL else "death", signal.Signals(-code).name

    def _tail(self) -> str:
        assert self._printed is not None
        return Path(self._printed.name).read_text(errors="replace")[-TAIL:]

    def __enter__(self) -> Sandbox[Job]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run_all(jobs: Sequence[Job], make: Callable[[], Sandbox[Job]], processes: int) -> Iterator[Fate]:
    """The fate of each job, in order, as soon as it is known."""
    return share_out(jobs, make, processes, lambda sandbox, job: sandbox.run(job))


def share_out(
    jobs: Sequence[Job],
    make: Callable[[], AbstractContextManager[Worker]],
    count: int,
    work: Callable[[Worker, Job], Result],
) -> Iterator[Result]:
    """The results of ``work`` for each job, in order, as soon as it is known; done by ``count`` workers in threads."""
    with ExitStack() as stack:
        idle: SimpleQueue[Worker] = SimpleQueue()
        for _ in range(count):
            idle.put(stack.enter_context(make()))

        def result(job: Job) -> Result:
            worker = idle.get()
            try:
                return work(worker, job)
            finally:
                idle.put(worker)

        threads = stack.enter_context(ThreadPoolExecutor(count))
        yield from threads.map(result, jobs)


@dataclass(frozen=True)
class _Setup:
    """The facts that a new process has to know."""

    function: Callable[[Any], Any]
    memory: int | None
    public: tuple[type[Exception], ...]
    prepare: Callable[[], object] | None


def _serve(pipe: Connection, printed: str, setup: _Setup) -> None:
    """The process: a job comes, what became of it goes."""
    # Drivers print to the descriptors themselves.
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(os.open(printed, os.O_WRONLY | os.O_APPEND), stream.fileno())
    faulthandler.enable()
    if setup.prepare:
        setup.prepare()
    pipe.send("ready")
    while True:
        try:
            job, seconds = pipe.recv()
        except EOFError:  # the parent is gone
            return
        os.truncate(printed, 0)
        faulthandler.dump_traceback_later(0.9 * seconds)  # to be there when the parent finds that it is a hang
        if setup.memory is not None:
            _limit_memory(setup.memory)
        fate = _fate(job, setup)
        faulthandler.cancel_dump_traceback_later()
        pipe.send(fate)


def _fate(job: Any, setup: _Setup) -> Fate:
    try:
        return Fate("answer", setup.function(job))
    except Exception as error:
        text, details = f"{type(error).__name__}: {error}", traceback.format_exc()
        if isinstance(error, MemoryError):
            return Fate("memory", None, text, details)
        return Fate("public error" if isinstance(error, setup.public) else "foreign exception", None, text, details)


def _limit_memory(more: int) -> None:
    """Let the process take ``more`` bytes than it has; threads and devices reserve much that they never touch."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
