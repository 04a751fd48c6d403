"""Questions about a model that many files answer, and the row of plain data that each file gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from tflgpu.api import CompiledModel
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Options

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
        """Which outputs :meth:`answers` gets, in this order. Raises ValueError for a model that does not fit."""

    @abstractmethod
    def answers(self, outputs: Mapping[str, Sequence[Array]], infos: Sequence[TensorInfo]) -> Row:
        """Return what a row keeps of the outputs that each engine gave for one file."""


def key_of(file: Path) -> str:
    """Return a file as it is now: changed in place it has another key. Raises OSError."""
    status = file.stat()
    return f"{file.absolute()} {status.st_size} {status.st_mtime_ns}"
