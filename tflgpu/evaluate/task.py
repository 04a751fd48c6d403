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
