"""The folder of a job: complete parts survive whatever ends it, and under its final name there is never a part only."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

# Errors that a part remembers in words. All of them are in its column of errors, and counted.
REMEMBERED = 20

# Files whose names begin with an underscore: readers of Parquet leave them out.
STATE, SUMMARY = "_job", "_summary.json"


@dataclass(frozen=True)
class PartResult:
    """Facts of a part that is complete: rows that were read, those that are bad, and why the first of them are."""

    rows: int
    errors: int
    first_errors: tuple[str, ...]


class JobFolder:
    """Files of a job that is not complete, in ``OUT.partial``.

    A part is complete when its mark is there, which is written after its file has its name. Both are renamed into
    place, so that two workers with the same part do no harm.
    """

    def __init__(self, path: Path, suffix: str) -> None:
        """suffix: of the files of results."""
        self.path, self._suffix = path, suffix

    def done(self) -> dict[int, PartResult]:
        """Return the parts that are complete, by their numbers."""
        found = dict[int, PartResult]()
        for mark in (self.path / STATE).glob("*.json"):
            if mark.stem.isdecimal():
                with suppress(ValueError, TypeError, OSError):  # it is computed again
                    facts = json.loads(mark.read_text())
                    found[int(mark.stem)] = PartResult(facts["rows"], facts["errors"], tuple(facts["first_errors"]))
        return found

    def complete(self, number: int, result: PartResult, write: Callable[[Path], None]) -> None:
        """Write a part, and then its mark: without the mark the part is computed again.

        Args:
            number: The part's number, from 0 on.
            result: Facts of the part, which the mark has.
            write: Writes the rows to a path.

        Raises:
            OSError: A file cannot be written.
        """
        self._place(self.path / f"{number:06}.{self._suffix}", write)
        facts = json.dumps(asdict(result))
        self._place(self.path / STATE / f"{number:06}.json", lambda path: _write_text(path, facts))

    def write_summary(self, facts: Mapping[str, Any]) -> None:
        """Write the facts of a complete job.

        Args:
            facts: In types of JSON.

        Raises:
            OSError: The file cannot be written.
        """
        self._place(self.path / SUMMARY, lambda path: _write_text(path, json.dumps(facts)))

    def _place(self, path: Path, write: Callable[[Path], None]) -> None:
        """Let a file appear when it is whole."""
        whole = self.path / STATE / f".{path.name}.{os.getpid()}"
        try:
            write(whole)
            whole.replace(path)
        except BaseException:
            whole.unlink(missing_ok=True)
            raise


def _write_text(path: Path, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def partial_folder(out: Path) -> Path:
    """Return the folder that a job has until it is complete.

    Args:
        out: The folder of the complete job.
    """
    return out.absolute().with_name(f"{out.name}.partial")


@contextmanager
def job_folder(out: Path, identity: Mapping[str, Any], suffix: str) -> Iterator[JobFolder]:
    """Open the folder of a job, also one that an earlier run has left. It gets the name ``out`` when this ends well.

    Args:
        out: The name of the complete folder.
        identity: Texts and numbers by what they say of the job. All have to be those of the earlier run.
        suffix: The suffix of the files of results.

    Raises:
        OSError: ``out`` is there already, another run writes to it, or the results did not arrive where this machine
            sees them.
        ValueError: The earlier run was another job.
    """
    if out.exists():
        raise FileExistsError(errno.EEXIST, "it is there already; give another name, or delete it", str(out))
    partial = partial_folder(out)
    (partial / STATE).mkdir(parents=True, exist_ok=True)
    lock = FileLock(partial / STATE / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise FileExistsError(errno.EEXIST, "another run writes to it at this moment", str(partial)) from None
    try:
        _check_identity(partial, dict(identity))
        folder = JobFolder(partial, suffix)
        yield folder
        if not any(partial.glob(f"*.{suffix}")):
            reason = "no results have arrived there; give a folder that all machines share"
            raise FileNotFoundError(errno.ENOENT, reason, str(partial))
        shutil.rmtree(partial / STATE, ignore_errors=True)
        partial.rename(out)
    except BaseException:
        if not JobFolder(partial, suffix).done():  # nothing to go on with
            shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        lock.release()


def _check_identity(partial: Path, identity: dict[str, Any]) -> None:
    """Write down which job it is, or compare. Raises ValueError if it was another one."""
    path = partial / STATE / "job"
    text = json.dumps(identity)
    try:
        earlier = json.loads(path.read_text())
    except (OSError, ValueError):
        for mark in (partial / STATE).glob("*.json"):  # of a job whose identity is lost
            mark.unlink()
        _write_text(path, text)
        return
    given = json.loads(text)
    if differing := sorted(name for name in given.keys() | earlier.keys() if given.get(name) != earlier.get(name)):
        raise ValueError(
            f"{partial} is of an earlier run with other {', '.join(differing)}; repeat its command to go on with it, "
            "give another name, or delete it"
        )
