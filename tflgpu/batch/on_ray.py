"""Parts of a job, and files of an evaluation, computed by actors of Ray, which starts those again that were killed."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayTaskError
from ray.util import ActorPool

from tflgpu.batch.job import Job, JobFolder, PartResult, RowPredictor
from tflgpu.batch.predictor import own_device
from tflgpu.evaluate.task import Engines, Row, Task, Worker, Workplace

# Starts of an actor, and tries of a call: one that kills its process would begin again for ever.
LIMITS = {"max_restarts": 100, "max_task_retries": 5}


def computed_on_ray(
    job: Job, parts: Sequence[int], folder: JobFolder, workers: int, address: str | None = None
) -> Iterator[tuple[int, PartResult]]:
    """Yield the results of parts, as they come. Errors of workers are raised as the workers raised them.

    A part that an actor had when it was killed is computed again, by the actor that is started in its place.

    Args:
        job: The rows and the model.
        parts: Numbers of the parts to compute.
        folder: Takes the results.
        workers: Most actors.
        address: A cluster, whose machines have the folder and the files under the same paths; by default one of this
            machine alone is started, and ended.

    Raises:
        ConnectionError: There is no such cluster.
    """
    with cluster(address):
        kind: Any = ray.remote(PartActor)
        place = {"num_cpus": 0, "num_gpus": gpus_for_each(workers), "scheduling_strategy": "SPREAD"}
        actors = [kind.options(**place, **LIMITS).remote(job, folder) for _ in range(min(workers, len(parts)))]
        pool: Any = ActorPool(actors)
        yield from pool.map_unordered(lambda actor, part: actor.compute.remote(part), parts)


class PartActor:
    """A predictor in a process of Ray, with a device of its own."""

    def __init__(self, job: Job, folder: JobFolder) -> None:
        """If it fails, the first part tells why: of actors that cannot start, Ray keeps only a text."""
        self._job, self._folder = job, folder
        self._predictor: RowPredictor | None = None
        try:
            self._predictor = RowPredictor(job.prediction)
        except Exception as error:
            self._failure = Failure(error)

    def compute(self, part: int) -> tuple[int, PartResult]:
        """Compute a part, and write it.

        Args:
            part: Its number, from 0 on.

        Returns:
            The number, and the facts of the part.

        Raises:
            Failure: The actor could not start, or the part failed; it has the error.
        """
        if self._predictor is None:
            raise self._failure
        try:
            return part, self._job.compute(part, self._predictor, self._folder, lambda: None)
        except Exception as error:
            raise Failure(error) from error


@contextmanager
def cluster(address: str | None) -> Iterator[None]:
    """Connect to Ray while this is open.

    Args:
        address: A cluster; None starts one of this machine alone, and ends it.

    Raises:
        ConnectionError: No cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
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


def gpus_for_each(workers: int) -> float:
    """Return the share of a GPU of each worker: one, or so little that all workers find a place.

    Args:
        workers: Their number.
    """
    gpus = ray.cluster_resources().get("GPU", 0)  # type: ignore[no-untyped-call]
    return 1 / ceil(workers / gpus) if gpus else 0


@contextmanager
def on_workers(task: Task, workers: int, address: str | None) -> Iterator[Workplace]:
    """Evaluate as in this process, but by workers of a cluster, which have the files under the same paths.

    Args:
        task: The model, its options and the data set.
        workers: Number of processes.
        address: A cluster of Ray; by default one of this machine alone is started, and ended.
    """
    with cluster(address):
        yield workplace(task, workers)


def workplace(task: Task, workers: int) -> Workplace:
    """Return workers in the cluster that is connected. The errors are those of :class:`tflgpu.evaluate.task.Worker`.

    Args:
        task: The model, its options and the data set.
        workers: Number of processes.
    """
    kind: Any = ray.remote(EvaluationActor)
    place = {"num_cpus": 0, "num_gpus": gpus_for_each(workers), "scheduling_strategy": "SPREAD"}
    actors = [kind.options(**place, **LIMITS).remote(task) for _ in range(workers)]
    pool: Any = ActorPool(actors)
    engines: Engines = ray.get(actors[0].engines.remote())
    return Workplace(engines, lambda files: pool.map_unordered(lambda actor, file: actor.row.remote(file), files))


class EvaluationActor:
    """A worker in a process of Ray, with a device of its own."""

    def __init__(self, task: Task) -> None:
        """If it fails, the first call tells why: of actors that cannot start, Ray keeps only a text."""
        self._worker: Worker | None = None
        try:
            options, self._lease = own_device(task.options, None)
            self._worker = Worker(replace(task, options=options))
        except Exception as error:
            self._failure = Failure(error)

    def engines(self) -> Engines:
        """Return what the worker compares, with versions."""
        return self._started().engines

    def row(self, file: Path) -> Row:
        """Return the row of a file.

        Args:
            file: A path that is valid on the worker's machine.

        Raises:
            Failure: The worker could not start, or raised an error; it has that error.
        """
        worker = self._started()
        try:
            return worker(file)
        except Exception as error:
            raise Failure(error) from error

    def _started(self) -> Worker:
        if self._worker is None:
            raise self._failure
        return self._worker
