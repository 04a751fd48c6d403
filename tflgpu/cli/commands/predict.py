"""``tflgpu predict``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import tflgpu
from tflgpu.cli.arguments import Address, AsJson, Mean, ModelPath, Std, Workers, with_options
from tflgpu.cli.console import console, note, print_json
from tflgpu.cli.extras import naming_extras
from tflgpu.cli.terminal.progress import progress
from tflgpu.model.model_source import read_bytes
from tflgpu.report.report import counted


@with_options()
def predict_rows(
    model: ModelPath,
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="Folders or files: images, or .npy or .parquet files with many rows.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Where to write the results, as Parquet; a new folder.", show_default=False
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
            "--column", metavar="INPUT=NAME", help="The column of an input in Parquet.", show_default="its name"
        ),
    ] = None,
    mean: Mean = None,
    std: Std = None,
    as_json: AsJson = False,
) -> None:
    """Run a model on every row of images, arrays or Parquet, and write the results as Parquet.

    Rows come out in the order in which they went in. With several workers Ray Data shares them out, and starts a worker
    again that was killed; no row is lost or comes twice.
    """
    with naming_extras():
        from tflgpu.batch.prediction import Prediction, open_rows, predict
    data = read_bytes(model)
    named = dict(_pair(each) for each in columns or ())
    infos = tflgpu.inspect(data, options).model.inputs
    shared = devices.split(",") if devices else None
    prediction = Prediction(data, options, named, shared).planned_once(infos)
    rows = open_rows(inputs, data, infos, mean, std)
    begin = time.perf_counter()
    with naming_extras(), progress("predicting", rows.batches(prediction.rows)) as step:
        predict(rows, prediction, out, step, workers, address)
    seconds = time.perf_counter() - begin
    if as_json:
        print_json({"rows": rows.count, "seconds": seconds, "rows_per_second": rows.count / seconds, "folder": out})
        return
    console.print(f"{counted(rows.count, 'row')} in {seconds:.1f} s, {rows.count / seconds:.0f} rows/s", markup=False)
    note(f"wrote {out}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, column = text.rpartition("=")
    if not equals:
        raise ValueError(f"--column is {text!r}; INPUT=NAME was expected")
    return name, column
