"""The work of a job, and the parts that it is done in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow as pa

from tflgpu.batch.formats import write
from tflgpu.batch.job_folder import REMEMBERED, JobFolder, PartResult
from tflgpu.batch.row_predictor import Prediction, RowPredictor
from tflgpu.batch.row_source import RowSource
from tflgpu.options import CacheFiles, Options
from tflgpu.version import __version__

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
