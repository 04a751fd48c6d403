"""The work of a job: the parts that it is done in, their results in a folder, and bad rows that lose nothing else."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from tflgpu.batch.formats import arrow_column, write
from tflgpu.batch.predictor import Predictor, Request
from tflgpu.batch.row_source import Rows, RowSource
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import CacheFiles, Options
from tflgpu.version import __version__

# Rows that are read and handed to a model together, if nothing says how many.
ROWS = 32

OnError = Literal["record", "skip", "stop"]

ERROR = "error"  # the column that says why a row has no results


@dataclass(frozen=True)
class Prediction:
    """Arguments of which a worker makes its predictor; see :class:`tflgpu.batch.Predictor`.

    model: the bytes, so that all workers have the same model, also those that start later and on other machines.
    on_error: of :func:`tflgpu.batch.predict`.
    """

    model: bytes = field(repr=False)
    options: Options
    devices: Sequence[Request] | None = None
    on_error: OnError = "record"

    def __post_init__(self) -> None:
        if self.on_error not in get_args(OnError):
            raise ValueError(f"on_error is {self.on_error!r}; one of {', '.join(get_args(OnError))} was expected")

    @property
    def rows(self) -> int:
        """The number of rows that are read together."""
        return self.options.shapes.batch or ROWS

    def planned_once(self, inputs: Sequence[TensorInfo]) -> Prediction:
        """Return a prediction that computes all rows by one program, also few, if the model leaves their number open.

        Args:
            inputs: The model's inputs.
        """
        if self.options.shapes.batch is None and all(0 in info.free_axes for info in inputs):
            return replace(self, options=replace(self.options, shapes=replace(self.options.shapes, batch=ROWS)))
        return self


class RowPredictor:
    """Makes a table of rows: the columns that stay, a column for each output, and one of errors."""

    def __init__(self, prediction: Prediction) -> None:
        self._on_error = prediction.on_error
        self._predictor = Predictor(prediction.model, prediction.options, devices=prediction.devices)

    def __call__(self, rows: Rows) -> pa.Table:
        """Return the results of rows.

        Raises ValueError for the first bad row if errors are to stop the job, and for a column that has the name of
        another one.
        """
        if rows.errors and self._on_error == "stop":
            raise ValueError(next(iter(rows.errors.values())))
        kept, good = rows.kept, rows.good
        names = [info.name for info in self._predictor.model.outputs]
        names += [ERROR] if self._on_error == "record" else []
        if twice := [name for name in names if name in kept.column_names]:
            raise ValueError(f"columns {twice} have the names of results; drop or rename them")
        places = pa.array(good, pa.int64())
        if self._on_error == "record":  # a result is null where there is none
            number = {place: n for n, place in enumerate(good)}
            places = pa.array([number.get(place) for place in range(len(kept))], pa.int64())
        else:
            kept = kept.take(places)
            places = pa.array(np.arange(len(good)))
        for name, result in self._predictor(rows.inputs).items():
            column = arrow_column(result)
            kept = kept.append_column(name, column if len(good) == len(kept) else column.take(places))
        if self._on_error == "record":
            kept = kept.append_column(ERROR, pa.array(map(rows.errors.get, range(len(kept))), pa.string()))
        return kept


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


# Is called when another batch of rows is done.
Step = Callable[[], None]

# Rows of a part at least: what a job that is killed computes again. And parts of a job at most: each is a file.
PART_ROWS, PARTS = 256, 1000


@dataclass(frozen=True)
class Job:
    """Work that any process can do a part of, if it has the files under the same paths.

    kind: the format of the results. reading: how rows were read, as far as it tells the job from others.
    """

    rows: RowSource
    prediction: Prediction
    kind: str
    reading: Mapping[str, Any] = field(default_factory=dict)

    @property
    def part_rows(self) -> int:
        """The number of rows of each part but the last one: a number of whole batches."""
        batch = self.prediction.rows
        return batch * ceil(max(PART_ROWS, self.rows.count / PARTS) / batch)

    @property
    def parts(self) -> int:
        """The number of parts."""
        return ceil(self.rows.count / self.part_rows)

    def batches(self, part: int) -> int:
        """Return the number of batches of a part.

        Args:
            part: Its number, from 0 on.
        """
        start, stop = self._range(part)
        return ceil((stop - start) / self.prediction.rows)

    def _range(self, part: int) -> tuple[int, int]:
        start = part * self.part_rows
        return start, min(start + self.part_rows, self.rows.count)

    def compute(self, part: int, predictor: RowPredictor, folder: JobFolder, step: Step) -> PartResult:
        """Compute a part and write its results. Errors of reading, running and writing are passed on.

        Args:
            part: Its number, from 0 on.
            predictor: Runs the model.
            folder: Takes the results and their mark.
            step: Is called after each batch.

        Returns:
            Rows that were read, those that are bad, and why the first of them are.
        """
        tables, errors = list[pa.Table](), list[str]()
        for rows in self.rows.read(*self._range(part), self.prediction.rows):
            tables.append(predictor(rows))
            errors += rows.errors.values()
            step()
        start, stop = self._range(part)
        result = PartResult(stop - start, len(errors), tuple(errors[:REMEMBERED]))
        table = pa.concat_tables(tables, promote_options="permissive")
        folder.complete(part, result, partial(write, table, kind=self.kind))
        return result

    def identity(self) -> dict[str, Any]:
        """Return what tells a job from others, by names for a message."""
        files = list[Any]()
        for name in self.rows.files:
            status = Path(name).stat() if Path(name).exists() else None
            files.append([name, status and status.st_size, status and status.st_mtime_ns])
        return {
            "model": sha256(self.prediction.model).hexdigest(),
            "options": repr(replace(self.prediction.options, cache=Options().cache, cache_files=CacheFiles())),
            "files": sha256(repr(files).encode()).hexdigest(),
            "on_error": self.prediction.on_error,
            "format": self.kind,
            "version of tflgpu": __version__,
            **self.reading,
        }
