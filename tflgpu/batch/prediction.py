"""From files of rows to a folder of results, part by part: in this process, or by actors of Ray."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from tflgpu.api import inspect
from tflgpu.batch.formats import FORMATS
from tflgpu.batch.job import REMEMBERED, Job, JobFolder, OnError, PartResult, Prediction, RowPredictor, Step, job_folder
from tflgpu.batch.predictor import Request
from tflgpu.batch.row_files import open_rows
from tflgpu.errors import InternalError
from tflgpu.model.model_source import ModelSource, read_bytes
from tflgpu.options import Options, check_options


@dataclass(frozen=True)
class Summary:
    """Facts of a job that is complete.

    Attributes:
        rows: The rows that were read.
        errors: Those of them that have no results.
        first_errors: Why the first of these have none; each text names the file and the row.
        resumed: The rows that an earlier run had computed.
        seconds: The time of this run.
        folder: Where the results are.
    """

    rows: int
    errors: int
    first_errors: tuple[str, ...]
    resumed: int
    seconds: float
    folder: Path


def predict(
    model: ModelSource,
    inputs: str | PathLike[str] | Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    options: Options | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    on_error: OnError = "record",
    format: str = "parquet",
    mean: float | None = None,
    std: float | None = None,
    workers: int = 1,
    address: str | None = None,
    devices: Sequence[Request] | None = None,
) -> Summary:
    """Run a model on every row of files, and write the results to a new folder.

    Results are written part by part into ``OUT.partial``, which becomes ``out`` when all of them are there. The same
    call after an interruption, however it came about, goes on where the last one was. No row is lost or comes twice.

    Args:
        model: As of :func:`tflgpu.compile`.
        inputs: Files, folders with all folders below them, patterns, or ``.txt`` files that list others: images, zip
            and tar files of images, ``.npy`` files with many rows, or tables (Parquet, Arrow, CSV, JSON Lines, npz).
        out: The folder.
        options: As of :func:`tflgpu.compile`.
        columns: The names of columns of tables by names of inputs, where they differ.
        on_error: ``record`` gives a bad row null for its results, and says why in the column ``error``; ``skip``
            leaves it out; ``stop`` ends the job at the first one, and keeps the parts that are complete. A row is bad
            if it cannot be read, is null, or has another shape than the input.
        format: ``parquet``, ``arrow``, ``csv``, ``jsonl``, ``npz`` or ``tar`` (WebDataset).
        mean: Pixels 0..255 become ``(pixel - mean) / std``, by default as the model's metadata say.
        std: See ``mean``.
        workers: The number of processes with a device each; several need Ray.
        address: The address of a cluster of Ray, whose machines have the files and the folder under the same paths.
        devices: The devices that the workers of a machine share, each as ``Options.device`` names it.

    Returns:
        The numbers of rows and of errors.

    Raises:
        OSError: A file is not there, ``out`` is there already, another run writes to it, or the disk is full.
        ValueError: The inputs do not fit the model, or have no rows; the partial folder is of another job; a row is
            bad, and ``on_error`` is ``stop``.
        ModuleNotFoundError: The library of a format, or Ray, is not installed.
        TflgpuError: As of :func:`tflgpu.compile`.
    """
    paths = [inputs] if isinstance(inputs, (str, PathLike)) else inputs
    job = open_job(
        read_bytes(model),
        [*map(Path, paths)],
        check_options(options),
        columns=columns,
        on_error=on_error,
        kind=format,
        mean=mean,
        std=std,
        devices=devices,
    )
    return run_job(job, Path(out), lambda: None, workers, address)


def open_job(
    model: bytes,
    inputs: Sequence[Path],
    options: Options,
    *,
    columns: Mapping[str, str] | None,
    on_error: OnError,
    kind: str,
    mean: float | None,
    std: float | None,
    devices: Sequence[Request] | None,
) -> Job:
    """Return the work of :func:`predict`, which has the same errors.

    Args:
        model: The bytes of the file.
        inputs: Files of rows.
        options: By which all workers compile.
        columns: The column of each input by its name; None if they have the same names.
        on_error: What becomes of a row that cannot be read.
        kind: The format of the results, a key of ``FORMATS``.
        mean: Of the bytes of images; None for the model's own.
        std: Of the bytes of images; None for the model's own.
        devices: Devices of which each worker takes one; None for that of the options.
    """
    infos = inspect(model, options).model.inputs
    rows = open_rows(inputs, model, infos, columns=columns, mean=mean, std=std)
    prediction = Prediction(model, options, devices, on_error).planned_once(infos)
    return Job(rows, prediction, kind, {"columns": dict(columns or {}), "mean": mean, "std": std})


def run_job(
    job: Job,
    out: Path,
    step: Step,
    workers: int = 1,
    address: str | None = None,
) -> Summary:
    """Compute the parts of a job that its folder does not have. The errors are those of :func:`predict`.

    Args:
        job: The rows and the model.
        out: The folder of the results. Until the job is complete it has another name.
        step: Is called after each batch of rows, and at once for the batches of an earlier run.
        workers: Number of processes; one is this process.
        address: A cluster of Ray; None for this machine.

    Raises:
        ValueError: The format is unknown, or there are no rows.
    """
    begin = time.perf_counter()
    if job.kind not in FORMATS:
        raise ValueError(f"format is {job.kind!r}; one of {', '.join(FORMATS)} was expected")
    if job.rows.count == 0:
        raise ValueError("the inputs have no rows")
    with job_folder(out, job.identity(), job.kind) as folder:
        done = folder.done()
        resumed = sum(result.rows for result in done.values())
        for part in done:
            _times(job.batches(part), step)
        missing = [part for part in range(job.parts) if part not in done]
        if missing:
            done |= _computed(job, missing, folder, step, workers, address)
        summary = _summary(job, done, resumed, time.perf_counter() - begin, out)
        folder.write_summary({"rows": summary.rows, "errors": summary.errors, "first_errors": summary.first_errors})
    return summary


def _computed(
    job: Job, parts: Sequence[int], folder: JobFolder, step: Step, workers: int, address: str | None
) -> dict[int, PartResult]:
    if workers == 1 and address is None:
        predictor = RowPredictor(job.prediction)
        return {part: job.compute(part, predictor, folder, step) for part in parts}
    from tflgpu.batch.on_ray import computed_on_ray

    found = dict[int, PartResult]()
    for part, result in computed_on_ray(job, parts, folder, workers, address):
        found[part] = result
        _times(job.batches(part), step)
    return found


def _times(count: int, step: Step) -> None:
    for _ in range(count):
        step()


def _summary(job: Job, done: Mapping[int, PartResult], resumed: int, seconds: float, out: Path) -> Summary:
    rows, errors = sum(result.rows for result in done.values()), sum(result.errors for result in done.values())
    if rows != job.rows.count:
        raise InternalError("writing results", f"results of {rows} rows were written of {job.rows.count}")
    first = [text for part in sorted(done) for text in done[part].first_errors][:REMEMBERED]
    return Summary(rows, errors, tuple(first), resumed, seconds, out)
