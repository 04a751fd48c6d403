"""An evaluation's files shared out over workers of Ray."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.util import ActorPool

from tflgpu.batch.on_ray import LIMITS, Failure, cluster, gpus_for_each
from tflgpu.batch.own_device import own_device
from tflgpu.evaluate.task import Row, Task
from tflgpu.evaluate.worker import Engines, Worker, Workplace


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
    """Return workers in the cluster that is connected. The errors are those of :class:`tflgpu.evaluate.worker.Worker`.

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
