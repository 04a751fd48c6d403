"""Image files -> upright pictures with values of 0 to 255."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
