"""What is to be found out about a model from many files, and the row of plain data that each file gives."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from tflgpu.api import CompiledModel, compile
from tflgpu.artifact.cache import content_hash
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.inputs import InputReader, naming
from tflgpu.model.model_source import read_bytes
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Options
from tflgpu.version import __version__

Array = NDArray[Any]

# What one file gave, as JSON has it: the file's key, seconds, and the answers of each engine.
Row = dict[str, Any]

# The engines' names in rows.
DEVICE, LITERT = "device", "litert"


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Plain data, which a worker of another process takes as it is. Metrics are computed from all rows, elsewhere.

    mean, std: of :class:`tflgpu.inputs.InputReader`. threads: of LiteRT; None for its own choice.
    litert: whether LiteRT's CPU answers, too.
    """

    model: Path
    options: Options
    mean: float | None = None
    std: float | None = None
    threads: int | None = None
    litert: bool = True

    name: ClassVar[str]
    crop: ClassVar[float | None] = None
    antialias: ClassVar[bool] = False

    @abstractmethod
    def positions(self, model: CompiledModel) -> tuple[int, ...]:
        """Which outputs :meth:`answers` gets, in this order. Raises ValueError for a model that does not fit."""

    @abstractmethod
    def answers(self, outputs: Mapping[str, Sequence[Array]], infos: Sequence[TensorInfo]) -> Row:
        """What a row keeps of the outputs that each engine gave for one file."""


class Worker:
    """A task's model on this machine: file -> row. A row depends on its file alone, not on those before."""

    def __init__(self, task: Task) -> None:
        """Raises what :func:`tflgpu.compile` raises, and ValueError for a model that does not fit the task."""
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
    def identity(self) -> dict[str, Any]:
        """Everything that rows depend on besides their files, as JSON has it."""
        task = self.task
        return {
            "task": task.name,
            "model": self._content,
            "device": list(self.model.device.identity),
            "precision": self.model.precision,
            "tuning": task.options.tuning,
            "tflgpu": __version__,
            "LiteRT": self.reference.version if self.reference else None,
            "mean": task.mean,
            "std": task.std,
        }

    def __call__(self, file: Path) -> Row:
        """Raises OSError for a file that cannot be read, ValueError, which names it, for one that does not fit."""
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
        """The outputs of each engine, and the seconds that it took."""
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


def key_of(file: Path) -> str:
    """A file as it is now: changed in place it has another key. Raises OSError."""
    status = file.stat()
    return f"{file.absolute()} {status.st_size} {status.st_mtime_ns}"
