"""The arrays that a model takes, from files of the user or random, and the labels of its answers."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.inputs.images import Pixels, Preprocessing, image_shape, normalization_of, read_image
from tflgpu.model.declared_metadata import ModelMetadata
from tflgpu.model.model_source import ModelSource, read_bytes
from tflgpu.model.tensor_info import TensorInfo

ARRAYS = (".npy", ".npz")
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def input_files(folder: Path, suffixes: tuple[str, ...] = ARRAYS + IMAGES) -> list[Path]:
    """Return the files of a folder that are inputs, in the alphabetical order of their names.

    Args:
        folder: Its own folders are not searched.
        suffixes: Ends of names, with the dot, in lower case.

    Raises:
        OSError: The folder cannot be read.
        ValueError: It has no such file.
    """
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in suffixes and p.is_file())
    if not files:
        raise ValueError(f"{folder} has no file that ends in {', '.join(suffixes)}")
    return files


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


class InputReader:
    """Reads what a model takes: .npy files as they are, .npz files by the names of inputs, anything else as images.

    The model is read only when an image comes, for how its metadata say that pixels are normalized.
    """

    def __init__(
        self,
        model: ModelSource,
        infos: Sequence[TensorInfo],
        *,
        mean: float | None = None,
        std: float | None = None,
        crop: float | None = None,
        antialias: bool = True,
    ) -> None:
        """infos: of the model's inputs, in order. mean, std: pixels become ``(pixel - mean) / std``, whatever the
        metadata say; one of them alone has 127.5 beside it. crop, antialias: of :class:`Preprocessing`.

        Raises ValueError for a std of 0.
        """
        if std == 0:
            raise ValueError("std is 0; pixel values are divided by it")
        self._model, self._infos = model, tuple(infos)
        self._mean, self._std, self._crop, self._antialias = mean, std, crop, antialias

    def read(self, paths: Sequence[Path]) -> list[NDArray[Any]]:
        """Return the model's inputs.

        Args:
            paths: A file for each input, in order; one .npz file for all; or, for a model of one input, a file for each
                element of its batch.

        Raises:
            OSError: A file cannot be read.
            ValueError: A file does not fit, and the message names it; or their number does not.
            ModelError: The metadata are damaged.
        """
        if len(paths) == 1 and paths[0].suffix == ".npz":
            return read_named_arrays(paths[0], self._infos)
        if len(paths) > 1 and [info.shape[:1] for info in self._infos] == [(len(paths),)]:
            row = replace(self._infos[0], shape=(1, *self._infos[0].shape[1:]))
            rows = [self._read(path, row, 0) for path in paths]
            with naming(paths):
                return [np.concatenate(rows)]
        if len(paths) != len(self._infos):
            expected = ", ".join(f"{i.name!r} {list(i.shape)}" for i in self._infos)
            raise ValueError(f"{len(paths)} inputs were given; the model has {len(self._infos)}: {expected}")
        return [self._read(path, info, n) for n, (path, info) in enumerate(zip(paths, self._infos, strict=True))]

    def image(self, pixels: Pixels, position: int = 0) -> NDArray[Any]:
        """Return an image in memory as an input takes it, without the input's leading axes.

        Args:
            pixels: An upright image [height, width, channels] of numbers from 0 to 255, of any height and width.
            position: The input's place.

        Raises:
            ValueError: The input is no image, or has another number of channels.
        """
        info = self._infos[position]
        if pixels.ndim != 3 or pixels.shape[2] != image_shape(info)[2]:
            raise ValueError(
                f"an image of shape {list(pixels.shape)} was given; input {info.name!r} of shape {list(info.shape)} "
                f"takes [height, width, {info.shape[-1]}]"
            )
        return self._preprocessing(position).apply(pixels, info)

    def _read(self, path: Path, info: TensorInfo, position: int) -> NDArray[Any]:
        if path.suffix in (".npy", ".npz"):
            return read_array(path)
        channels = image_shape(info)[2]
        if prod(info.shape[:-3]) != 1:
            raise ValueError(f"input {info.name!r} has shape {list(info.shape)}, and {path} is one image")
        pixels = read_image(path, channels)
        with naming([path]):
            return self.image(pixels, position).reshape(info.shape)

    def _preprocessing(self, position: int) -> Preprocessing:
        info = self._infos[position]
        given = self._mean is not None or self._std is not None
        declared = () if given else self._metadata.inputs
        normalization = declared[position].normalization if position < len(declared) else None
        chosen = normalization_of(info, normalization, self._mean, self._std)
        return Preprocessing(chosen, self._crop, self._antialias)

    @cached_property
    def _metadata(self) -> ModelMetadata:
        from tflgpu.model.metadata import read_metadata  # only images need it

        return read_metadata(read_bytes(self._model))


@contextmanager
def naming(paths: Sequence[Path]) -> Iterator[None]:
    """Name files in the message of a ValueError that is raised while this is open.

    Args:
        paths: The files that are being read.
    """
    try:
        yield
    except ValueError as error:
        files = ", ".join(map(str, paths))
        raise ValueError(f"{files}: {error}" if files else str(error)) from error


def random_input(info: TensorInfo, generator: np.random.Generator) -> NDArray[Any]:
    """Return Gaussian numbers as the delegate's Inference Diff tool draws them.

    With a mean of 1/2 and a deviation of 1/3, drawn again outside of [0, 1), and stretched to -1..1 for floats and to
    all values for 8-bit and 16-bit integers. Wider integers, which may be indices, are 0 or 1.

    https://github.com/tensorflow/tensorflow, lite/tools/evaluation/stages/inference_profiler_stage.cc

    Args:
        info: The input; its shape and element type are the result's.
        generator: Is advanced.
    """
    dtype = np.dtype(info.dtype)
    unit = generator.normal(0.5, 1 / 3, info.shape)
    while (outside := (unit < 0) | (unit >= 1)).any():
        unit = np.where(outside, generator.normal(0.5, 1 / 3, info.shape), unit)
    if dtype.kind == "f":
        return (2 * unit - 1).astype(dtype)
    whole_range = dtype.kind in "iu" and dtype.itemsize < 4
    lowest, highest = (np.iinfo(dtype).min, np.iinfo(dtype).max) if whole_range else (0, 1)
    drawn: NDArray[Any] = np.floor(lowest + unit * (highest - lowest + 1)).astype(dtype)
    return drawn


def read_labels(path: Path) -> list[str]:
    """Return the names of classes; line n of the file names class n.

    Args:
        path: A text file in UTF-8.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no text in UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8: {error}") from error
