"""Output arrays -> what a person wants to know of them."""

from __future__ import annotations

import re
import zipfile
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
    """One class of a classifier's answer. row: place in the batch of what it is an answer to."""

    row: int
    index: int
    label: str | None
    score: float


@dataclass(frozen=True)
class Summary:
    """One output in real values. ``top``: of each row the best classes, best first, if rows are vectors; else empty."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    minimum: float | None
    maximum: float | None
    top: tuple[Score, ...]


def summarize(info: TensorInfo, array: NDArray[Any], labels: Sequence[str], top: int, batch: int = 1) -> Summary:
    """labels: names of the classes, for outputs that have as many. batch: of a batched output, its first axis."""
    values = real(array, info.quantization)
    rows = values if batch > 1 and array.shape[:1] == (batch,) else values[None]
    size = rows[0].size
    is_vector = size > 1 and max(rows.shape[1:]) == size
    named = labels if len(labels) == size else None
    scores = tuple(
        Score(number, i, named[i] if named else None, float(row[i]))
        for number, row in enumerate(rows.reshape(-1, size) if is_vector else ())
        for i in np.argsort(-row, kind="stable")[:top].tolist()
    )
    minimum, maximum = (float(values.min()), float(values.max())) if values.size else (None, None)
    return Summary(info.name, tuple(array.shape), array.dtype.name, minimum, maximum, scores)


def check_labels(path: Path, labels: Sequence[str], infos: Sequence[TensorInfo], batch: int = 1) -> None:
    """Raise ValueError if no output has an element, in each row, for each of the labels that ``path`` has."""
    sizes = {info.name: int(np.prod(info.shape)) // batch for info in infos}
    if len(labels) not in sizes.values():
        outputs = ", ".join(f"{name!r} has {size} elements" for name, size in sizes.items())
        raise ValueError(f"{path} has {len(labels)} labels, but output {outputs}")


def save(path: Path, arrays: Mapping[str, NDArray[Any]]) -> list[Path]:
    """Write the arrays to one file, if its name ends in .npz, under their names; else to a folder."""
    return _save_in_one(path, arrays) if path.suffix == ".npz" else _save_in_folder(path, arrays)


def _save_in_one(path: Path, arrays: Mapping[str, NDArray[Any]]) -> list[Path]:
    """Save as numpy.savez does, to which no array may be given whose name is that of an argument."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return [path]


def _save_in_folder(folder: Path, arrays: Mapping[str, NDArray[Any]]) -> list[Path]:
    """Each array as ``<position>_<name>.npy``, in a folder that is made if it is not there.

    Names are the model's: only their letters, digits, dots and dashes are used, so that none leads out of the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i}_{re.sub(r'[^A-Za-z0-9.-]+', '_', name)[:100]}.npy" for i, name in enumerate(arrays)]
    for path, array in zip(paths, arrays.values(), strict=True):
        np.save(path, array, allow_pickle=False)
    return paths
