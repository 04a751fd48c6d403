"""Image files -> the numbers that an image input takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.declared_metadata import Normalization
from tflgpu.model.tensor_info import TensorInfo

if TYPE_CHECKING:
    from PIL import Image


# [height, width, channels], whole numbers of 0 to 255; floats if the file has more than 8 bits a channel.
Pixels = NDArray[np.uint8] | NDArray[np.float32]

# Pillow's name of the pixel format by its channels.
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_image(path: Path, channels: int) -> Pixels:
    """Return an image, turned as its EXIF data say.

    Args:
        path: A file that Pillow can read, of 8 or 16 bits a channel.
        channels: 1 for gray, 3 for RGB, 4 for RGBA; the image is converted.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no such image. The message names the file.
    """
    with open(path, "rb") as file:
        if file.read(8)[4:] == b"TFL3":
            raise ValueError(f"{path} is a model; an image or a .npy file was expected as its input")
        file.seek(0)
        try:
            return decode_image(file, channels)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def decode_image(file: IO[bytes], channels: int) -> Pixels:
    """Return an image, turned as its EXIF data say.

    Args:
        file: An open file, or bytes in a BytesIO.
        channels: 1 for gray, 3 for RGB, 4 for RGBA; the image is converted.

    Raises:
        ValueError: It is no image of 8 or 16 bits a channel.
    """
    from PIL import Image  # arrays do without

    try:
        with Image.open(file) as image:
            return _pixels(image, channels)
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises anything for a damaged file
        raise ValueError(str(error).replace(repr(file), "it")) from error


def _pixels(image: Image.Image, channels: int) -> Pixels:
    """Read pixels; Pillow gives the upper 8 bits of 16-bit colours. Raises ValueError for numbers that have no
    white."""
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(image)
    # Mode I has up to 32 bits, but these formats have 16 at most: Pillow reads them as 0 to 65535.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        grey = np.asarray(turned, np.float32)[..., None] / np.float32(257)
        opaque = np.full_like(grey, 255)
        return np.concatenate([grey] * min(channels, 3) + [opaque] * (channels == 4), axis=-1)
    if image.mode in ("I", "F"):
        kind = "whole numbers of up to 32 bits" if image.mode == "I" else "floats"
        raise ValueError(f"its pixels are {kind}, and which of them is white is not known; give it as a .npy file")
    return np.atleast_3d(np.asarray(turned.convert(MODES[channels])))


# For float inputs of which nothing else is known: -1..1, as TFLite's evaluation tools take it.
USUAL = Normalization((127.5,), (127.5,))


@dataclass(frozen=True)
class Preprocessing:
    """Steps that an image's pixels take before a model sees them: cropped, resized, normalized, quantized.

    normalization: None for pixels as they are, which only inputs of 8 bits take.
    crop: the part of the shorter side that a square in the middle keeps; None for the whole image.
    antialias: resize as Pillow does. Otherwise four pixels make one, however many there are, from the upper left corner
    on: what TFLite's RESIZE_BILINEAR computes, and its evaluation tools with it.
    """

    normalization: Normalization | None
    crop: float | None = None
    antialias: bool = True

    def apply(self, pixels: Pixels, info: TensorInfo) -> NDArray[Any]:
        """Return an image in the input's size and element type: [height, width, channels].

        Args:
            pixels: [height, width, channels] of numbers from 0 to 255, with the input's channels.
            info: The input.

        Raises:
            ValueError: The input takes no images.
        """
        height, width, channels = image_shape(info)
        if self.crop is not None:
            pixels = _cropped(pixels, self.crop)
        resized = _smooth(pixels, height, width) if self.antialias else _sampled(pixels, height, width)
        if self.normalization is None:
            return _as_they_are(resized, info)
        mean, std = (_numbers(each, channels, info) for each in (self.normalization.mean, self.normalization.std))
        return _quantized((resized - mean) / std, info)


def normalization_of(
    info: TensorInfo, declared: Normalization | None, mean: float | None, std: float | None
) -> Normalization | None:
    """Return the normalization of an input: the user's, else none for 8 bits, else the model's, else -1..1.

    TFLite's tools take pixels as they are for 8 bits (minus 128, if signed), whatever the metadata declare: they
    describe the float model, which was quantized so that pixels pass through.

    Args:
        info: The input.
        declared: The normalization of the model's metadata.
        mean: The user's, in units of bytes; None for 127.5 if only ``std`` is given.
        std: The user's, in units of bytes; None for 127.5 if only ``mean`` is given.
    """
    if mean is not None or std is not None:
        return Normalization(*((127.5 if each is None else each,) for each in (mean, std)))
    return None if np.dtype(info.dtype) in (np.uint8, np.int8) else declared or USUAL


def image_shape(info: TensorInfo) -> tuple[int, int, int]:
    """Return height, width and channels of an image input.

    Args:
        info: The input; its last three axes are these.

    Raises:
        ValueError: It takes no images.
    """
    image = info.shape[-3:]
    if len(image) < 3 or image[2] not in MODES:
        raise ValueError(
            f"input {info.name!r} has shape {list(info.shape)}, which no image fits; "
            "[1, height, width, 1, 3 or 4] takes images, anything else .npy files"
        )
    return image[0], image[1], image[2]


def _cropped(pixels: Pixels, part: float) -> Pixels:
    """Return the square in the middle, rounded as TFLite's tools round (halves up)."""
    height, width = pixels.shape[:2]
    side = int(part * min(height, width) + 0.5)
    top, left = (height - side + 1) // 2, (width - side + 1) // 2
    return pixels[top : top + side, left : left + side]


def _smooth(pixels: Pixels, height: int, width: int) -> NDArray[np.float32]:
    from PIL import Image

    def resize(plane: Pixels) -> NDArray[np.float32]:
        return np.asarray(Image.fromarray(plane).resize((width, height), Image.Resampling.BILINEAR), np.float32)

    if pixels.dtype == np.uint8 and pixels.shape[2] > 1:
        return resize(pixels)
    return np.dstack([resize(pixels[..., channel]) for channel in range(pixels.shape[2])])


def _sampled(pixels: Pixels, height: int, width: int) -> NDArray[np.float32]:
    """Products and sums in the order of TFLite's reference kernel: 8-bit inputs cut what is just below a whole number.

    https://github.com/tensorflow/tensorflow, lite/kernels/internal/reference/resize_bilinear.h
    """
    top, bottom, down = _neighbours(pixels.shape[0], height)
    left, right, across = _neighbours(pixels.shape[1], width)
    down = down[:, None, None]
    across = across[:, None]
    upper, lower = pixels[top], pixels[bottom]
    corners = (rows.take(columns, 1).astype(np.float32) for columns in (left, right) for rows in (upper, lower))
    upper_left, lower_left, upper_right, lower_right = corners
    sampled: NDArray[np.float32] = (
        upper_left * (1 - down) * (1 - across)
        + lower_left * down * (1 - across)
        + upper_right * (1 - down) * across
        + lower_right * down * across
    )
    return sampled


def _neighbours(length: int, size: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """For ``size`` samples along an axis: the elements before and after each, and its distance from the first."""
    places = np.arange(size, dtype=np.float32) * np.float32(length / size)
    before = places.astype(np.intp)
    return before, np.minimum(before + 1, length - 1), places - before.astype(np.float32)


def _as_they_are(values: NDArray[np.float32], info: TensorInfo) -> NDArray[Any]:
    pixels: NDArray[Any] = (values + np.iinfo(info.dtype).min).astype(info.dtype)  # cuts, as TFLite's tools do
    return pixels


def _numbers(numbers: tuple[float, ...], channels: int, info: TensorInfo) -> NDArray[np.float32]:
    if len(numbers) not in (1, channels):
        raise ValueError(
            f"the model's metadata normalize {len(numbers)} channels, but input {info.name!r} has {channels}"
        )
    return np.array(numbers, np.float32)


def _quantized(values: NDArray[np.float32], info: TensorInfo) -> NDArray[Any]:
    """Real values in the input's element type."""
    dtype = np.dtype(info.dtype)
    if dtype.kind == "f":
        return values.astype(dtype)
    if info.quantization is None or dtype.kind not in "iu":
        raise ValueError(f"input {info.name!r} has element type {info.dtype} and no scale; give it as a .npy file")
    return info.quantization.integers(values, dtype)
