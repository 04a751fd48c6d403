"""Prediction in this process, without Ray."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tflgpu.batch.row_files import ListedRows, ParquetRows
from tflgpu.batch.table_predictor import Prediction, Step, TablePredictor

# Bytes of results that are gathered until they are written: readers are slow with many small groups of rows.
ROW_GROUP = 64 << 20

FILE = "000000.parquet"


def predict_here(rows: ParquetRows | ListedRows, prediction: Prediction, folder: Path, step: Step) -> None:
    """Write the results of all rows to a file in ``folder``.

    Raises what :class:`tflgpu.batch.Predictor` raises, and OSError.
    """
    predictor = TablePredictor(prediction)
    writer: pq.ParquetWriter | None = None
    gathered: list[pa.Table] = []
    try:
        for table in rows.tables(prediction.rows):
            result = predictor(table)
            writer = writer or pq.ParquetWriter(folder / FILE, result.schema)
            gathered.append(result)
            if sum(each.nbytes for each in gathered) >= ROW_GROUP:
                writer.write_table(pa.concat_tables(gathered))
                gathered.clear()
            step()
        if writer and gathered:
            writer.write_table(pa.concat_tables(gathered))
    finally:
        if writer:
            writer.close()
