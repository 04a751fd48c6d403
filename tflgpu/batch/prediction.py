"""From files of rows to a folder of results: in this process, or by Ray."""

from __future__ import annotations

from pathlib import Path

from tflgpu.batch.result_folder import result_folder
from tflgpu.batch.row_files import ListedRows, ParquetRows, open_rows, written_rows
from tflgpu.batch.table_predictor import Prediction, Step
from tflgpu.errors import InternalError

__all__ = ["Prediction", "open_rows", "predict"]


def predict(
    rows: ParquetRows | ListedRows,
    prediction: Prediction,
    out: Path,
    step: Step,
    workers: int = 1,
    address: str | None = None,
) -> None:
    """Write the result of every row to Parquet in the new folder ``out``, in the order of ``rows``.

    One worker is this process, unless an address is given: that of a cluster of Ray, whose machines have the files and
    the folder under the same paths. Calls ``step`` as often as another batch of rows is done.

    Raises OSError, ValueError, and what :func:`tflgpu.compile` raises; ModuleNotFoundError without Ray.
    """
    if rows.count == 0:
        raise ValueError("the inputs have no rows")
    with result_folder(out) as folder:
        if workers == 1 and address is None:
            from tflgpu.batch.in_process import predict_here

            predict_here(rows, prediction, folder, step)
        else:
            from tflgpu.batch.on_ray import predict_on_ray

            predict_on_ray(rows, prediction, folder, step, workers, address)
        written = written_rows(folder)
        if written != rows.count:
            raise InternalError("writing results", f"{written} rows were written of {rows.count}")
