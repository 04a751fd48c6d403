"""Prediction by the workers of Ray Data. Ray shares out rows, restarts workers, and writes results."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext, Dataset
from ray.exceptions import RayTaskError

from tflgpu.batch.row_files import ListedRows, ParquetRows
from tflgpu.batch.table_predictor import Prediction, TablePredictor

# Ray's own limit is none, and a model that kills its process would begin again for ever.
LIMITS = {"max_restarts": 100, "max_task_retries": 5}

# Blocks of a listing. Each costs Ray milliseconds; fewer than workers would leave some without work.
BLOCKS = 1000


@contextmanager
def cluster(address: str | None, show_progress: bool) -> Iterator[None]:
    """Ray while this is open: the cluster at an address, or one of this machine alone, which ends with it.

    Raises ConnectionError if there is no cluster, and errors of workers as they raised them.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    own: dict[str, Any] = {} if address else {"include_dashboard": False}
    ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        context = DataContext.get_current()
        context.enable_progress_bars = show_progress
        context.raise_original_map_exception = True
        # The newer reader of Parquet fails where two of its threads try at once to import what is not installed.
        context.use_datasource_v2 = False
        context.execution_options.preserve_order = True  # of files, by their names, and of rows in them
        with redirect_stdout(sys.stderr):  # Ray tells there of workers that were killed
            yield
    except RayTaskError as error:
        raise (error.cause.error if isinstance(error.cause, Failure) else error.cause) from error
    finally:
        ray.shutdown()


class Failure(Exception):
    """Carries an error of a worker: into those that it hands on itself, Ray writes advice of its own."""

    def __init__(self, error: Exception, *_advice: object) -> None:
        super().__init__(error)
        self.error = error


class Worker:
    """A table predictor in an actor of Ray, which takes the model from the object store."""

    def __init__(self, model: ray.ObjectRef[bytes], prediction: Prediction) -> None:
        """If it fails, the first batch tells why: of actors that cannot start, Ray keeps only a text."""
        self._predictor: TablePredictor | None = None
        try:
            self._predictor = TablePredictor(replace(prediction, model=ray.get(model)))
        except Exception as error:
            self._failure = Failure(error)

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._predictor is None:
            raise self._failure
        return _carrying_errors(self._predictor, table)


def _carrying_errors(step: Callable[[pa.Table], pa.Table], table: pa.Table) -> pa.Table:
    try:
        return step(table)
    except Exception as error:
        raise Failure(error) from error


def predict_on_ray(rows: ParquetRows | ListedRows, prediction: Prediction, workers: int, folder: Path) -> None:
    """Write the results of all rows to files in ``folder``, which all workers must have under the same path."""
    gpus = ray.cluster_resources().get("GPU", 0)  # type: ignore[no-untyped-call]
    results = _dataset(rows, prediction.rows).map_batches(
        Worker,
        fn_constructor_args=(ray.put(prediction.model), replace(prediction, model=b"")),
        batch_format="pyarrow",
        batch_size=prediction.rows,
        compute=ActorPoolStrategy(size=workers),
        num_cpus=0,  # the device computes; with a processor for each, a small machine had none to read rows
        num_gpus=1 / ceil(workers / gpus) if gpus else 0,
        ray_remote_args_fn=lambda: LIMITS,
    )
    results.write_parquet(str(folder))


def _dataset(rows: ParquetRows | ListedRows, size: int) -> Dataset:
    if isinstance(rows, ParquetRows):
        return ray.data.read_parquet(list(rows.paths))
    block = size * ceil(rows.batches(size) / BLOCKS)
    blocks = [rows.listing.slice(start, block) for start in range(0, len(rows.listing), block)]
    read = partial(_carrying_errors, rows.reader)
    return ray.data.from_arrow(blocks).map_batches(read, batch_format="pyarrow", batch_size=size)
