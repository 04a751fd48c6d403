"""A predictor from rows to a table of results, in which bad rows lose nothing but themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from tflgpu.batch.arrow_columns import arrow_column
from tflgpu.batch.own_device import Request
from tflgpu.batch.predictor import Predictor
from tflgpu.batch.row_source import Rows
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Options

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
