"""From files of rows to a folder of results: in this process, or by Ray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tflgpu.batch.result_folder import result_folder
from tflgpu.batch.row_files import ListedRows, ParquetRows, open_rows, written_rows
from tflgpu.batch.table_predictor import Prediction
from tflgpu.errors import InternalError

__all__ = ["Prediction", "open_rows", "predict"]


def predict(
    rows: ParquetRows | ListedRows,
    prediction: Prediction,
    out: Path,
    workers: int = 1,
    address: str | None = None,
) -> Iterator[None]:
    """Write the result of every row to Parquet in the new folder ``out``, in the order of ``rows``.

    One worker is this process, unless an address is given: that of a cluster of Ray, whose machines have the files and
    the folder under the same paths. Yields about as often as a batch is written.

    Raises OSError, ValueError, and what :func:`tflgpu.compile` raises; ModuleNotFoundError without Ray.
    """
    if rows.count == 0:
        raise ValueError("the inputs have no rows")
    with result_folder(out) as folder:
        if workers == 1 and address is None:
            from tflgpu.batch.in_process import predict_here

            yield from predict_here(rows, prediction, folder)
        else:
            from tflgpu.batch.on_ray import predict_on_ray

            yield from predict_on_ray(rows, prediction, folder, workers, address)
        written = written_rows(folder)
        if written != rows.count:
            raise InternalError("writing results", f"{written} rows were written of {rows.count}")
