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
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Literal, NamedTuple

from scripts.mutate.mutant import ROOT, Mutant

NO_TESTS = 5  # pytest's exit code


class Outcome(NamedTuple):
    """Result of the tests of a mutant. by: the test that failed, where there is one. seconds: of processor time.

    A mutant with which tests do not end is caught, too; with which the machine was too busy, it is not judged.
    """

    kind: Literal["caught", "survived", "untested", "not judged"]
    by: str = ""
    seconds: float = 0.0


class Copy:
    """A throw-away copy of the files that git knows, and of those that it does not ignore; a context manager."""

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

    def check(self) -> None:
        """Raise RuntimeError unless tests pass here without a mutant: else all of them would be caught."""
        outcome = self._run(["tests/schedules/test_threads.py"], 60)
        if outcome.kind != "survived":
            raise RuntimeError(f"tests fail without a mutant: {outcome.by}")

    def source(self, file: str) -> str:
        """A file without mutants."""
        return (self._folder / file).read_text()

    def try_out(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> Outcome:
        """Run tests with the mutant until one fails, or they have taken ``seconds`` of processor time.

        A test that takes three times as long is taken for one that does not end.
        """
        if not tests:
            return Outcome("untested")
        path = self._folder / mutant.file
        source, status = path.read_text(), path.stat()
        path.write_text(mutant.applied(source))
        try:
            return self._run(tests, seconds)
        finally:
            path.write_text(source)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _run(self, tests: Sequence[str], seconds: float) -> Outcome:
        plugins = ("-p", "no:cacheprovider", "-p", "scripts.mutate.budget")
        command = [sys.executable, "-m", "pytest", "-n0", "-x", "-q", "--tb=no", *plugins, *tests]
        shared = os.environ.get("TFLGPU_SHARED", str(ROOT.parent / "shared"))
        # No bytecode: Python tells it by time and size, which a mutant may share with what it was made of.
        own = {"PYTHONPATH": str(self._folder), "PYTHONDONTWRITEBYTECODE": "1", "TFLGPU_SHARED": shared}
        own["TFLGPU_MUTATE_SECONDS"] = str(seconds)
        limit = 3 * int(seconds) + 1  # of a test that does not end
        before, end = _children(), monotonic() + 60 * seconds  # the machine may be busy
        with tempfile.TemporaryFile("w+") as printed:
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=os.environ | own,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)),
            )
            try:
                code = process.wait(end - monotonic())
            except subprocess.TimeoutExpired:
                return Outcome("not judged")
            finally:
                with suppress(ProcessLookupError):  # also what tests have started
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            printed.seek(0)
            lines = printed.read().splitlines()
        failed = next((line for line in lines if line.startswith(("FAILED", "ERROR"))), "")
        taken = _children() - before
        if code == 0:
            return Outcome("survived", seconds=taken)
        if code == NO_TESTS:
            return Outcome("untested", seconds=taken)
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return Outcome("caught", "a test does not end", taken)
        return Outcome("caught", failed or (lines or [""])[-1], taken)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
