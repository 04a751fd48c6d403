"""A copy of the repository in which mutants are tried, one after another, against tests."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType, TracebackType
from typing import Literal, NamedTuple, NoReturn

import pytest

from scripts.mutate.mutant import ROOT, Mutant

FAILED = ("FAILED ", "ERROR ")  # how lines of pytest's summary begin
IDLE = 30  # seconds in which tests that use no processor time are taken to wait forever
KILLED = (signal.SIGXCPU, signal.SIGKILL)
SOME = "tests/schedules/test_threads.py"
OWN = ("tflgpu", "tests", "scripts", "conftest")  # what a run of tests imports from the copy


class Outcome(NamedTuple):
    """Result of the tests of a mutant. by: the test that failed, where there is one. seconds: of processor time.

    A mutant with which tests do not end is caught, too; where they do not without it, either, it is not judged.
    """

    kind: Literal["caught", "survived", "untested", "not judged"]
    by: str = ""
    seconds: float = 0.0


class Copy:
    """A throw-away copy of the files that git knows, and of those that it does not ignore; a context manager.

    Tests run in forks of this process, which has imported what they need from other packages.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tflgpu-mutants-"))
        names = subprocess.check_output(["git", "ls-files", "-coz", "--exclude-standard"], cwd=ROOT, text=True)
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                target = self._folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)

    def __enter__(self) -> Copy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def prepare(self) -> None:
        """Import what tests need from other packages, and write the bytecode of all modules.

        Raises:
            RuntimeError: Tests fail here without a mutant: all mutants would be caught.
        """
        self._run(["tests", "--collect-only"], 600, writes_bytecode=True)
        with redirect_stdout(StringIO()):
            pytest.main(["-n0", "--collect-only", "-q", "-p", "no:cacheprovider", SOME])
        if failing := self.failing([SOME]):
            raise RuntimeError(f"tests fail without a mutant: {failing}")

    def source(self, file: str) -> str:
        """A file without mutants."""
        return (self._folder / file).read_text()

    def failing(self, tests: Sequence[str]) -> set[str]:
        """The tests that fail without a mutant."""
        _, lines = self._run([*tests, "--all"], 600) if tests else (0, [])
        return {_name(line) for line in lines if line.startswith(FAILED)}

    def try_out(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> Outcome:
        """Run tests with the mutant until one fails, or they have taken ``seconds`` of processor time.

        A test that takes three times as long does not end, unless it takes as long without the mutant.
        """
        if not tests:
            return Outcome("untested")
        path = self._folder / mutant.file
        source, status = path.read_text(), path.stat()
        before = _children()
        path.write_text(mutant.applied(source))
        try:
            code, lines = self._run([*tests, "-x"], seconds)
        finally:
            path.write_text(source)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        taken = _children() - before
        if code in KILLED:
            endless = self._run([*tests, "-x"], seconds)[0] not in KILLED
            return Outcome("caught" if endless else "not judged", "a test does not end", taken)
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return Outcome("survived" if code == pytest.ExitCode.OK else "untested", seconds=taken)
        failed = [_name(line) for line in lines if line.startswith(FAILED)]
        return Outcome("caught", (failed or lines[-1:] or [f"exit code {code}"])[0], taken)

    def _run(self, arguments: Sequence[str], seconds: float, writes_bytecode: bool = False) -> tuple[int, list[str]]:
        """Run pytest in a fork. Returns its exit code, or a signal where time is over, and what it printed."""
        with tempfile.TemporaryDirectory(prefix="tflgpu-mutants-") as scratch:
            printed = Path(scratch, "printed")
            process = os.fork()
            if not process:
                self._run_here(arguments, seconds, scratch, printed, writes_bytecode)
            ended, used, until = (0, 0), 0, monotonic() + IDLE
            try:
                while not (ended := os.waitpid(process, os.WNOHANG))[0]:
                    if monotonic() > until:
                        used, before = _ticks(process), used
                        if used == before:  # threads that wait for each other
                            return signal.SIGXCPU, []
                        until = monotonic() + IDLE
                    sleep(0.02)
            finally:
                with suppress(ProcessLookupError):  # also what tests have started
                    os.killpg(process, signal.SIGKILL)
                if not ended[0]:
                    os.waitpid(process, 0)
            status = ended[1]
            return os.WTERMSIG(status) or os.WEXITSTATUS(status), printed.read_text().splitlines()

    def _run_here(
        self, arguments: Sequence[str], seconds: float, scratch: str, printed: Path, writes_bytecode: bool
    ) -> NoReturn:
        """Be the fork."""
        code = int(pytest.ExitCode.INTERNAL_ERROR)
        try:
            os.setsid()
            with printed.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            limit = 3 * int(seconds) + 1  # of a test that does not end
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            os.chdir(self._folder)
            # A mutant's bytecode is not kept: Python tells it by time and size, which may be those of another mutant.
            sys.dont_write_bytecode = not writes_bytecode
            sys.pycache_prefix = str(self._folder / ".bytecode")
            os.environ |= {
                "PYTHONPATH": str(self._folder),
                "PYTHONPYCACHEPREFIX": sys.pycache_prefix,
                "PYTHONDONTWRITEBYTECODE": "" if writes_bytecode else "1",
                "TFLGPU_SHARED": os.environ.get("TFLGPU_SHARED", str(ROOT.parent / "shared")),
                "TFLGPU_MUTATE_SECONDS": str(seconds),
                "TMPDIR": scratch,
            }
            tempfile.tempdir = None
            sys.path[:] = [str(self._folder), *(path for path in sys.path if path not in ("", str(ROOT)))]
            for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
                del sys.modules[name]
            sys.modules["__main__"] = ModuleType("__main__")  # what processes that tests spawn run first
            plugins = ("-p", "no:cacheprovider", "-p", "scripts.mutate.budget")
            code = int(pytest.main(["-n0", "-q", "--tb=no", *plugins, *arguments]))
            sys.stdout.flush()
        finally:
            os._exit(code)


def _name(line: str) -> str:
    """The test of a line of pytest's summary."""
    return line.split(" ", 1)[1].split(" - ")[0]


def _ticks(group: int) -> int:
    """The processor time of a group of processes."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            values = path.read_text().rpartition(")")[2].split()
            ticks += (int(values[11]) + int(values[12])) * (int(values[2]) == group)
    return ticks


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
