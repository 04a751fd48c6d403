"""A task's model on this machine: from a file to its row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tflgpu.api import compile
from tflgpu.artifact.cache import content_hash
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.evaluate.task import DEVICE, LITERT, Array, Row, Task, key_of
from tflgpu.inputs import InputReader, naming
from tflgpu.model.model_source import read_bytes
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.version import __version__


@dataclass(frozen=True)
class Engines:
    """Engines that compute the rows of a task; plain data.

    device, litert: facts for people, as JSON has them; litert is None if it does not answer.
    outputs: of the model. identity: everything that rows depend on besides their files, as JSON has it.
    """

    device: dict[str, Any]
    precision: str
    outputs: tuple[TensorInfo, ...]
    litert: dict[str, Any] | None
    identity: dict[str, Any]


@dataclass(frozen=True)
class Workplace:
    """Where rows come from: this process, or any number of others. ``rows`` gives those of files, in any order."""

    engines: Engines
    rows: Callable[[Iterable[Path]], Iterator[Row]]


@contextmanager
def in_this_process(task: Task) -> Iterator[Workplace]:
    """Evaluate in this process while the block is open. The errors are those of :class:`Worker`.

    Args:
        task: The model, its options and the data set.
    """
    worker = Worker(task)
    with worker.model:
        yield Workplace(worker.engines, lambda files: map(worker, files))


class Worker:
    """A row depends on its file alone, not on those before."""

    def __init__(self, task: Task) -> None:
        """Raise what :func:`tflgpu.compile` raises, and ValueError for a model that does not fit the task."""
        self.task = task
        data = read_bytes(task.model)
        self.model = compile(data, task.options)
        if any(operator.code == "VAR_HANDLE" for operator in self.model.report.operators):
            raise ValueError(
                "the model keeps state in resource variables, so that an answer depends on the inputs before; "
                "`tflgpu diff` runs such models"
            )
        self._positions = task.positions(self.model)
        self._infos = tuple(self.model.outputs[p] for p in self._positions)
        self._content = content_hash(data)
        self.reference = LiteRT(data, task.threads) if task.litert else None
        self._reader = InputReader(
            data, self.model.inputs, mean=task.mean, std=task.std, crop=task.crop, antialias=task.antialias
        )
        self._is_warm = False

    @property
    def engines(self) -> Engines:
        """Engines that are compared, with versions: the identity of a run."""
        model, reference, task = self.model, self.reference, self.task
        identity = {
            "task": task.name,
            "model": self._content,
            "device": list(model.device.identity),
            "precision": model.precision,
            "tuning": task.options.execution.tuning,
            "tflgpu": __version__,
            "outputs": list(self._positions),
            "LiteRT": reference.version if reference else None,
            "mean": task.mean,
            "std": task.std,
        }
        litert = {"version": reference.version, "threads": reference.threads} if reference else None
        return Engines(model.device.as_dict(), model.precision, model.outputs, litert, identity)

    def __call__(self, file: Path) -> Row:
        """Raise OSError for a file that cannot be read, ValueError, which names it, for one that does not fit."""
        row: Row = {"file": key_of(file)}
        start = time.perf_counter()
        arrays = self._reader.read([file])
        row["preprocessing_seconds"] = time.perf_counter() - start
        with naming([file]):
            if not self._is_warm:  # the first run of an engine pays for what others find ready
                self._run(arrays)
                self._is_warm = True
            outputs, row["seconds"] = self._run(arrays)
            chosen = {engine: [each[p] for p in self._positions] for engine, each in outputs.items()}
            return row | self.task.answers(chosen, self._infos)

    def _run(self, arrays: Sequence[Array]) -> tuple[dict[str, list[Array]], dict[str, float]]:
        """Return the outputs of each engine, and the seconds that it took."""
        outputs: dict[str, list[Array]] = {}
        seconds: dict[str, float] = {}
        if self.reference is not None:
            self.reference.reset()
            start = time.perf_counter()
            outputs[LITERT] = self.reference.run(arrays)
            seconds[LITERT] = time.perf_counter() - start
        self.model.reset_state()
        start = time.perf_counter()
        outputs[DEVICE] = list(self.model.run(arrays).values())
        seconds[DEVICE] = time.perf_counter() - start
        return outputs, seconds
