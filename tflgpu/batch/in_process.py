"""Prediction in this process, without Ray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tflgpu.batch.row_files import ListedRows, ParquetRows
from tflgpu.batch.table_predictor import Prediction, TablePredictor

# Bytes of results that are gathered until they are written: readers are slow with many small groups of rows.
ROW_GROUP = 64 << 20

FILE = "000000.parquet"


def predict_here(rows: ParquetRows | ListedRows, prediction: Prediction, folder: Path) -> Iterator[None]:
    """Write the results of all rows to a file in ``folder``; yields after each batch.

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
            yield
        if writer and gathered:
            writer.write_table(pa.concat_tables(gathered))
    finally:
        if writer:
            writer.close()
