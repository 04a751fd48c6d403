"""``tflgpu predict``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tflgpu
from tflgpu.cli.arguments import Address, AsJson, Mean, ModelPath, Std, Workers, naming_extras, with_options
from tflgpu.cli.console import console, note, print_json
from tflgpu.cli.progress import progress
from tflgpu.model.model_source import read_bytes
from tflgpu.report.report import counted

if TYPE_CHECKING:
    from tflgpu.batch.prediction import Summary

SHOWN = 5  # errors


class ResultFormat(Enum):
    """The formats of results."""

    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"
    JSONL = "jsonl"
    NPZ = "npz"
    TAR = "tar"


class WithBadRows(Enum):
    """Treatment of rows that cannot be read."""

    RECORD = "record"
    SKIP = "skip"
    STOP = "stop"


@with_options()
def predict_rows(
    model: ModelPath,
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="Folders, files, patterns, or .txt files that list others: images, or archives of them, .npy files "
            "with many rows, or tables: .parquet, .arrow, .csv, .jsonl, .npz.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Where to write the results; a new folder, or that of a run that was interrupted.",
            show_default=False,
        ),
    ],
    options: tflgpu.Options,
    workers: Workers = 1,
    address: Address = None,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="What the workers of a machine share, by commas, each as --device names it.",
            show_default="Ray's GPUs, else --device for all",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column", metavar="INPUT=NAME", help="The column of an input in a table.", show_default="its name"
        ),
    ] = None,
    kind: Annotated[ResultFormat, typer.Option("--format", help="The format of the results.")] = ResultFormat.PARQUET,
    on_error: Annotated[
        WithBadRows,
        typer.Option(
            help="What becomes of a row that cannot be read: a column of errors says why, it is left out, or the run "
            "stops."
        ),
    ] = WithBadRows.RECORD,
    mean: Mean = None,
    std: Std = None,
    as_json: AsJson = False,
) -> None:
    """Run a model on every row of images, arrays or tables, and write the results.

    Rows come out in the order in which they went in. A run that was interrupted or killed is continued by the same
    command: complete parts are kept in FOLDER.partial. With several workers Ray shares out the parts, and starts a
    worker again that was killed; no row is lost or comes twice.
    """
    with naming_extras():
        from tflgpu.batch.prediction import open_job, run_job
    job = open_job(
        read_bytes(model),
        inputs,
        options,
        columns=dict(_pair(each) for each in columns or ()),
        on_error=on_error.value,
        kind=kind.value,
        mean=mean,
        std=std,
        devices=devices.split(",") if devices else None,
    )
    batches = sum(map(job.batches, range(job.parts)))
    with naming_extras(), progress("predicting", batches) as step, _going_on(out):
        summary = run_job(job, out, step, workers, address)
    computed = summary.rows - summary.resumed
    speed = computed / summary.seconds
    if as_json:
        print_json(asdict(summary) | {"rows_per_second": speed})
    else:
        _print(summary, computed, speed)
    if summary.errors == summary.rows:
        raise ValueError(f"no row has results; the first: {summary.first_errors[0]}")


def _print(summary: Summary, computed: int, speed: float) -> None:
    console.print(
        f"{counted(computed, 'row')} in {summary.seconds:.1f} s, {speed:.0f} rows/s"
        + (f"; {counted(summary.resumed, 'row')} of an earlier run" if summary.resumed else ""),
        markup=False,
    )
    if summary.errors:
        note(f"{counted(summary.errors, 'row')} without results, the first:")
        for text in summary.first_errors[:SHOWN]:
            note(f"  {text}")
    note(f"wrote {summary.folder}")


@contextmanager
def _going_on(out: Path) -> Iterator[None]:
    """Where this ends early, say how to go on, if there is something to go on with."""
    try:
        yield
    except BaseException:
        from tflgpu.batch.job import partial_folder

        partial = partial_folder(out)
        if partial.exists():
            note(f"complete parts are in {partial}; the same command goes on from there")
        raise


def _pair(text: str) -> tuple[str, str]:
    name, equals, column = text.rpartition("=")
    if not equals:
        raise ValueError(f"--column is {text!r}; INPUT=NAME was expected")
    return name, column
