"""Prediction by the workers of Ray Data. Ray shares out rows, restarts workers, and writes results."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
import ray.data
import ray.util.client
from ray.data import ActorPoolStrategy, DataContext, Dataset
from ray.exceptions import RayTaskError

from tflgpu.batch.row_files import ListedRows, ParquetRows, written_rows
from tflgpu.batch.table_predictor import Prediction, Step, TablePredictor

# Seconds between two looks at what is written.
LOOK = 0.5

# Blocks of a listing. Each costs Ray milliseconds; fewer than workers would leave some without work.
BLOCKS = 1000

# Blocks that are given to an actor at once. Ray Data looks ten times a second which are done; of its default, two, a
# fast device has none left by then.
BLOCKS_IN_FLIGHT = 8


def predict_on_ray(
    rows: ParquetRows | ListedRows,
    prediction: Prediction,
    folder: Path,
    step: Step,
    workers: int,
    address: str | None = None,
) -> None:
    """Write the results of all rows to files in ``folder``; calls ``step`` as often as another batch of rows is there.

    address: of a cluster, whose machines have the folder and the files under the same paths; by default one of this
    machine alone is started, and ended. Raises ConnectionError if there is none, and errors of workers as they raised
    them.
    """
    arguments = rows, prediction, folder, workers
    with cluster(address), _watched(folder, prediction.rows, step):
        if ray.util.client.ray.is_connected():  # type: ignore[no-untyped-call]
            # Ray Data does not work from outside of a cluster.
            ray.get(ray.remote(num_cpus=0)(predict_inside).remote(*arguments))
        else:
            predict_inside(*arguments)


@contextmanager
def _watched(folder: Path, size: int, step: Step) -> Iterator[None]:
    """Let a thread look at what is written: an interrupt must find the main one in Ray Data, which then stops its
    own."""
    ended = threading.Event()

    def watch() -> None:
        seen = 0
        while not ended.wait(LOOK):
            batches = written_rows(folder) // size
            for _ in range(seen, batches):
                step()
            seen = max(seen, batches)

    thread = threading.Thread(target=watch, name="tflgpu-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Ray while this is open."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # or each run would warn of Ray Data's own actors
    own: dict[str, Any] = {} if address else {"include_dashboard": False}
    with redirect_stdout(sys.stderr):  # Ray tells there of workers that were killed
        try:
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
        except ConnectionError as error:
            raise ConnectionError(f"--address {address}: no cluster of Ray answers: {error}") from error
        try:
            yield
        except RayTaskError as error:
            cause = error.cause
            while isinstance(cause, RayTaskError):
                cause = cause.cause
            raise (cause.error if isinstance(cause, Failure) else cause) from error
        finally:
            ray.shutdown()


class Failure(Exception):
    """Carries an error of a worker: into those that it hands on itself, Ray writes advice of its own."""

    def __init__(self, error: Exception, *_advice: object) -> None:
        super().__init__(error)
        self.error = error


class Worker:
    """A table predictor in an actor of Ray."""

    def __init__(self, prediction: Prediction) -> None:
        """If it fails, the first batch tells why: of actors that cannot start, Ray keeps only a text."""
        self._predictor: TablePredictor | None = None
        try:
            self._predictor = TablePredictor(prediction)
        except Exception as error:
            self._failure = Failure(error)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Return the table with a column for each output. Raises what starting the worker raised."""
        if self._predictor is None:
            raise self._failure
        return _carrying_errors(self._predictor, table)


def _carrying_errors(step: Callable[[pa.Table], pa.Table], table: pa.Table) -> pa.Table:
    try:
        return step(table)
    except Exception as error:
        raise Failure(error) from error


def predict_inside(rows: ParquetRows | ListedRows, prediction: Prediction, folder: Path, workers: int) -> None:
    """In a process that is part of the cluster."""
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.raise_original_map_exception = True
    # The newer reader of Parquet fails where two of its threads try at once to import what is not installed.
    context.use_datasource_v2 = False
    context.execution_options.preserve_order = True  # of files, by their names, and of rows in them
    results = _dataset(rows, prediction.rows).map_batches(
        Worker,
        fn_constructor_args=(prediction,),
        batch_format="pyarrow",
        batch_size=prediction.rows,
        compute=ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=BLOCKS_IN_FLIGHT),
        num_cpus=0,  # the device computes; with a processor for each, a small machine had none to read rows
        num_gpus=gpus_for_each(workers),
    )
    results.write_parquet(str(folder))


def gpus_for_each(workers: int) -> float:
    """One GPU, or so little that all workers find a place."""
    gpus = ray.cluster_resources().get("GPU", 0)  # type: ignore[no-untyped-call]
    return 1 / ceil(workers / gpus) if gpus else 0


def _dataset(rows: ParquetRows | ListedRows, size: int) -> Dataset:
    if isinstance(rows, ParquetRows):
        return ray.data.read_parquet(list(rows.paths))
    block = size * ceil(rows.batches(size) / BLOCKS)
    blocks = [rows.listing.slice(start, block) for start in range(0, len(rows.listing), block)]
    read = partial(_carrying_errors, rows.reader)
    return ray.data.from_arrow(blocks).map_batches(read, batch_format="pyarrow", batch_size=size)
