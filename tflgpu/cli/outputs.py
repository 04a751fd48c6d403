"""Output arrays -> what a person wants to know of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.evaluate.accuracy import real
from tflgpu.model.tensor_info import TensorInfo


@dataclass(frozen=True)
class Score:
    """One class of a classifier's answer."""

    index: int
    label: str | None
    score: float


@dataclass(frozen=True)
class Summary:
    """One output in real values. ``top``: the best classes, best first, if it is a vector; else empty."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    minimum: float | None
    maximum: float | None
    top: tuple[Score, ...]


def summarize(info: TensorInfo, array: NDArray[Any], labels: Sequence[str], top: int) -> Summary:
    """``labels`` name the classes of outputs that have as many."""
    values = real(array, info.quantization)
    flat = values.reshape(-1)
    is_vector = flat.size > 1 and max(array.shape) == flat.size
    named = labels if len(labels) == flat.size else None
    best = np.argsort(-flat, kind="stable")[:top].tolist() if is_vector else ()
    scores = tuple(Score(i, named[i] if named else None, float(flat[i])) for i in best)
    minimum, maximum = (float(flat.min()), float(flat.max())) if flat.size else (None, None)
    return Summary(info.name, tuple(array.shape), array.dtype.name, minimum, maximum, scores)


def check_labels(path: Path, labels: Sequence[str], infos: Sequence[TensorInfo]) -> None:
    """Raises ValueError if no output has an element for each of the labels that ``path`` has."""
    sizes = {info.name: int(np.prod(info.shape)) for info in infos}
    if len(labels) not in sizes.values():
        outputs = ", ".join(f"{name!r} has {size} elements" for name, size in sizes.items())
        raise ValueError(f"{path} has {len(labels)} labels, but output {outputs}")


def save(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> list[Path]:
    """Write each array to ``folder`` as ``<position>_<name>.npy``, made if it is not there.

    Names are the model's: only their letters, digits, dots and dashes are used, so that none leads out of the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i}_{re.sub(r'[^A-Za-z0-9.-]+', '_', name)[:100]}.npy" for i, name in enumerate(arrays)]
    for path, array in zip(paths, arrays.values(), strict=True):
        np.save(path, array, allow_pickle=False)
    return paths
