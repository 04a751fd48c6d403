"""Input arrays: images, resized and scaled to what the model takes, .npy files as they are, and random numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.tensor_info import TensorInfo

if TYPE_CHECKING:
    from PIL import Image

# Pillow's name of the pixel format with so many channels.
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_inputs(paths: Sequence[Path], infos: Sequence[TensorInfo], mean: float, std: float) -> list[NDArray[Any]]:
    """One file for each input, in order; see :func:`read_input`. Raises ValueError if there are more or fewer."""
    if len(paths) != len(infos):
        expected = ", ".join(f"{i.name!r} {list(i.shape)}" for i in infos)
        raise ValueError(f"{len(paths)} inputs were given; the model has {len(infos)}: {expected}")
    return [read_input(path, info, mean, std) for path, info in zip(paths, infos, strict=True)]


@contextmanager
def naming(paths: Sequence[Path]) -> Iterator[None]:
    """While a model runs on these files: a ValueError about what they hold names them."""
    try:
        yield
    except ValueError as error:
        files = ", ".join(map(str, paths))
        raise ValueError(f"{files}: {error}" if files else str(error)) from error


def random_input(info: TensorInfo, generator: np.random.Generator) -> NDArray[Any]:
    """Gaussian numbers as the delegate's Inference Diff tool draws them.

    With a mean of 1/2 and a deviation of 1/3, drawn again outside of [0, 1), and stretched to -1..1 for floats and to
    all values for 8-bit and 16-bit integers. Wider integers, which may be indices, are 0 or 1.

    https://github.com/tensorflow/tensorflow, lite/tools/evaluation/stages/inference_profiler_stage.cc
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


def read_input(path: Path, info: TensorInfo, mean: float, std: float) -> NDArray[Any]:
    """The array for input ``info``.

    A .npy file is taken as it is. Anything else is an image of 8 or 16 bits a channel: turned as its EXIF data say,
    resized to the input's height and width, its values 0..255 scaled to ``(value - mean) / std``, and quantized if the
    input is.

    Raises OSError for a file that cannot be read, ValueError for one that does not fit the input.
    """
    return _read_array(path) if path.suffix == ".npy" else _read_image(path, info, mean, std)


def _read_array(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as error:
        raise ValueError(f"{path} is not an array that numpy can read: {error}") from error
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} holds several arrays; an .npy file with one was expected")
    return array


def _read_image(path: Path, info: TensorInfo, mean: float, std: float) -> NDArray[Any]:
    from PIL import Image  # arrays from .npy files do without

    if std == 0:
        raise ValueError("--std is 0; pixel values are divided by it")
    height, width, channels = _image_shape(info)
    try:
        with Image.open(path) as image:
            upright = _upright(image, channels)
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises anything for a damaged file
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise ValueError(f"{path}: {error}") from error
    planes = [np.asarray(p.resize((width, height), Image.Resampling.BILINEAR), np.float32) for p in upright]
    pixels = np.dstack(planes).reshape(info.shape)
    return _quantized((pixels - np.float32(mean)) / np.float32(std), info)


def _upright(image: Image.Image, channels: int) -> list[Image.Image]:
    """One image with all channels, or one for each, with values of 0 to 255, turned as the camera was held.

    Of 16-bit colours Pillow itself gives the upper 8 bits. Raises ValueError for numbers that have no white.
    """
    from PIL import Image, ImageOps

    turned = ImageOps.exif_transpose(image)
    # Mode I has up to 32 bits, but these formats have 16 at most: Pillow reads them as 0 to 65535.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        grey = Image.fromarray(np.asarray(turned, np.float32) / np.float32(257))
        return [grey] * min(channels, 3) + [Image.new("F", grey.size, 255)] * (channels == 4)
    if image.mode in ("I", "F"):
        kind = "whole numbers of up to 32 bits" if image.mode == "I" else "floats"
        raise ValueError(f"its pixels are {kind}, and which of them is white is not known; give it as a .npy file")
    return [turned.convert(MODES[channels])]


def _image_shape(info: TensorInfo) -> tuple[int, int, int]:
    leading, image = info.shape[:-3], info.shape[-3:]
    if len(image) < 3 or image[2] not in MODES or any(d != 1 for d in leading):
        raise ValueError(
            f"input {info.name!r} has shape {list(info.shape)}, which no image fits; "
            "[1, height, width, 1, 3 or 4] takes images, anything else .npy files"
        )
    return image[0], image[1], image[2]


def _quantized(values: NDArray[np.float32], info: TensorInfo) -> NDArray[Any]:
    """Real values in the input's element type."""
    dtype = np.dtype(info.dtype)
    if dtype.kind == "f":
        return values.astype(dtype)
    if info.quantization is None:
        raise ValueError(f"input {info.name!r} has element type {info.dtype} and no scale; give it as a .npy file")
    steps = np.rint(values / info.quantization.scale[0]) + info.quantization.zero_point[0]
    limits = np.iinfo(dtype)
    quantized: NDArray[Any] = np.clip(steps, limits.min, limits.max).astype(dtype)
    return quantized
