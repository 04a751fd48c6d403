"""The arrays that a model takes, from files of the user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.inputs.arrays import read_array, read_named_arrays
from tflgpu.inputs.images import Pixels, read_image
from tflgpu.inputs.preprocessing import Preprocessing, image_shape, normalization_of
from tflgpu.model.metadata.declarations import ModelMetadata
from tflgpu.model.model_source import ModelSource, read_bytes
from tflgpu.model.tensor_info import TensorInfo


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
        from tflgpu.model.metadata.metadata_reader import read_metadata  # only images need it

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
