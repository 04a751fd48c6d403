"""Arrays from .npy files, and from .npz files that hold one for each input."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.tensor_info import TensorInfo

_DAMAGE = (ValueError, EOFError, MemoryError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError)


def read_array(path: Path) -> NDArray[Any]:
    """Return the one array of a file.

    Args:
        path: An .npy file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no file with one array.
    """
    try:
        with open(path, "rb") as file:
            array = np.load(file, allow_pickle=False)
    except _DAMAGE as error:
        raise ValueError(f"{path} is not an array that numpy can read: {error}") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} holds several arrays; an .npy file with one was expected")
    return array


def read_named_arrays(path: Path, infos: Sequence[TensorInfo]) -> list[NDArray[Any]]:
    """Return the arrays of a file that have the inputs' names.

    Args:
        path: An .npz file. For a model of one input its only array may have any name.
        infos: The inputs.

    Returns:
        An array for each input, in order.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is damaged, or lacks an input.
    """
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("it holds one array, as .npy files do")
            arrays = {name: loaded[name] for name in loaded.files}
    except _DAMAGE as error:
        raise ValueError(f"{path} is not a file of arrays that numpy can read: {error}") from error
    if len(infos) == len(arrays) == 1:
        return list(arrays.values())
    if missing := [info.name for info in infos if info.name not in arrays]:
        held = ", ".join(map(repr, arrays)) or "none"
        raise ValueError(f"{path} has no array named {', '.join(map(repr, missing))}; it has {held}")
    return [arrays[info.name] for info in infos]
