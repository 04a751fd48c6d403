"""Questions about a model that many files answer, each file by a row of plain data that is kept until all have one."""

from __future__ import annotations

import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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

# The results of one file, in types of JSON: the file's key, seconds, and the answers of each engine.
Row = dict[str, Any]

# The engines' names in rows.
DEVICE, LITERT = "device", "litert"


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Plain data, which a worker in another process takes as it is. Metrics are computed from all rows, elsewhere.

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
        """Return the places of the outputs that :meth:`answers` gets, in its order.

        Args:
            model: The model that is evaluated.

        Raises:
            ValueError: The model does not fit the task.
        """

    @abstractmethod
    def answers(self, outputs: Mapping[str, Sequence[Array]], infos: Sequence[TensorInfo]) -> Row:
        """Return the part of a row that depends on the outputs for one file, in types of JSON.

        Args:
            outputs: Those that :meth:`positions` names, by engine.
            infos: Those of the same outputs.
        """


def key_of(file: Path) -> str:
    """Return the key of a file: path, size and time of change. A file that was changed in place has another key.

    Args:
        file: It must exist.

    Raises:
        OSError: Its facts cannot be read.
    """
    status = file.stat()
    return f"{file.absolute()} {status.st_size} {status.st_mtime_ns}"


KIND = "tflgpu evaluation"


class StateFile:
    """A line of JSON that says which evaluation it is, and one for each row.

    The file appears at once with its first line; each row is appended by one write. What a process that was killed
    leaves unfinished is at most a last line without an end, which is dropped.

    rows: by the keys of their files.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        """identity: as JSON has it. Raises OSError, or ValueError for a file that belongs to something else."""
        self.path = path
        self.rows: dict[str, Row] = {}
        self._header = {"kind": KIND} | dict(identity)
        if path.exists():
            self._read()
        else:
            self._create()

    def append(self, row: Row) -> None:
        """Keep a row, unless another process was done with the same evaluation and has removed the file.

        Args:
            row: In types of JSON.

        Raises:
            OSError: The file cannot be written.
        """
        self.rows[row["file"]] = row
        with suppress(FileNotFoundError), open(self.path, "ab", buffering=0, opener=_existing) as file:
            file.write(_line(row))

    def remove(self) -> None:
        """When the evaluation is done. Raises OSError."""
        self.path.unlink(missing_ok=True)

    def _create(self) -> None:
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(_line(self._header))
            temporary.replace(self.path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        try:
            header, *rows = map(json.loads, content[:whole].splitlines())
            if header.get("kind") != KIND:
                raise ValueError
            self.rows = {row["file"]: row for row in rows}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"{self.path} is not the state of an evaluation; name another file with --state") from None
        if header != self._header:
            keys = [key for key in self._header | header if header.get(key) != self._header.get(key)]
            differing = ", ".join(f"{key} ({header.get(key)!r} there, {self._header.get(key)!r} here)" for key in keys)
            raise ValueError(
                f"{self.path} belongs to another evaluation, which differs in {differing}; remove it, or name another "
                "file with --state"
            )
        if whole < len(content):
            os.truncate(self.path, whole)


def _existing(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_CREAT)


def _line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data).encode() + b"\n"


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
