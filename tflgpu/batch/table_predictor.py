"""A predictor from table to table: what is no input passes through as Arrow has it, whatever its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tflgpu.batch.arrow_columns import arrow_column, numpy_column
from tflgpu.batch.own_device import Request
from tflgpu.batch.predictor import Predictor
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Options

# Is called when another batch of rows is done.
Step = Callable[[], None]

# Rows that are read and handed to a model together, if nothing says how many.
ROWS = 32


@dataclass(frozen=True)
class Prediction:
    """Arguments of which a worker makes its predictor; see :class:`tflgpu.batch.Predictor`.

    model: the bytes, so that all workers have the same model, also those that start later and on other machines.
    """

    model: bytes = field(repr=False)
    options: Options
    columns: Mapping[str, str]
    devices: Sequence[Request] | None

    @property
    def rows(self) -> int:
        """In one table."""
        return self.options.shapes.batch or ROWS

    def planned_once(self, inputs: Sequence[TensorInfo]) -> Prediction:
        """Compute all tables by one program, also a short one, if a model leaves the number of rows open."""
        if self.options.shapes.batch is None and all(0 in info.free_axes for info in inputs):
            return replace(self, options=replace(self.options, shapes=replace(self.options.shapes, batch=ROWS)))
        return self


class TablePredictor:
    """A :class:`tflgpu.batch.Predictor` for ``map_batches`` with ``batch_format="pyarrow"``."""

    def __init__(self, prediction: Prediction) -> None:
        self._predictor = Predictor(
            prediction.model, prediction.options, columns=prediction.columns, devices=prediction.devices
        )

    def __call__(self, table: pa.Table) -> pa.Table:
        """Raise ValueError for columns that are missing or do not fit."""
        inputs = [name for name in self._predictor.columns.values() if name in table.column_names]
        kept = table.drop_columns(inputs)
        if twice := [info.name for info in self._predictor.model.outputs if info.name in kept.column_names]:
            raise ValueError(f"columns {twice} have the names of outputs; drop or rename them")
        for name, rows in self._predictor({name: numpy_column(name, table[name]) for name in inputs}).items():
            kept = kept.append_column(name, arrow_column(rows))
        return kept
