"""Images of every kind: scaled to 0..255 and upright, or refused."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tflgpu.inputs import InputReader
from tflgpu.model.tensor_info import TensorInfo

# From black to white, and a middle that 8 bits do not hold.
GREY = np.array([[0, 257, 1000], [32768, 65000, 65535]], np.uint16)


def read(path: Path, channels: int, size: tuple[int, int] = (2, 3)) -> NDArray[np.float32]:
    info = TensorInfo("image", (1, *size, channels), "float32", None)
    (array,) = InputReader(b"", [info], mean=0, std=1).read([path])
    assert array.dtype == np.float32
    return array[0]


def png(pixels: NDArray[np.uint16]) -> bytes:
    """A PNG of 16 bits a channel, which Pillow writes only of one channel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_grey_of_16_bits(suffix: str, channels: int, tmp_path: Path) -> None:
    path = tmp_path / f"grey{suffix}"
    Image.fromarray(GREY).save(path)
    got = read(path, channels)
    np.testing.assert_allclose(got[..., : min(channels, 3)], np.dstack([GREY / 257] * min(channels, 3)), rtol=1e-6)
    assert (got[..., 3:] == 255).all()


def test_big_endian_grey_of_16_bits(tmp_path: Path) -> None:
    path = tmp_path / "grey.tif"
    Image.frombytes("I;16B", (3, 2), GREY.astype(">u2").tobytes()).save(path)
    np.testing.assert_allclose(read(path, 1)[..., 0], GREY / 257, rtol=1e-6)


def test_grey_of_16_bits_is_resized(tmp_path: Path) -> None:
    path = tmp_path / "grey.png"
    Image.fromarray(np.repeat(np.repeat(GREY, 4, 0), 4, 1)).save(path)
    got = read(path, 1, (4, 6))[..., 0]
    np.testing.assert_allclose(got[0, 0], 0, atol=1e-3)
    np.testing.assert_allclose(got[-1, -1], 255, rtol=1e-6)
    assert got.min() >= 0 and got.max() <= 255


@pytest.mark.parametrize("channels", [3, 4])
def test_colours_of_16_bits(channels: int, tmp_path: Path) -> None:
    pixels = np.dstack([GREY, GREY // 2, GREY // 3, 65535 - GREY])[..., :channels]
    (tmp_path / "colours.png").write_bytes(png(pixels))
    np.testing.assert_allclose(read(tmp_path / "colours.png", channels), pixels / 257, atol=1)


@pytest.mark.parametrize(("mode", "kind"), [("F", "floats"), ("I", "whole numbers of up to 32 bits")])
def test_numbers_without_a_white_are_refused(mode: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "numbers.tif"
    Image.fromarray(np.linspace(0, 1, 6).reshape(2, 3).astype({"F": np.float32, "I": np.int32}[mode])).save(path)
    with pytest.raises(ValueError, match=rf"numbers\.tif: its pixels are {kind}.*\.npy"):
        read(path, 3)


@pytest.mark.parametrize("mode", ["L", "I;16", "RGB"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_upright(orientation: int, mode: str, tmp_path: Path) -> None:
    """EXIF's eight ways in which the camera was held, from its specification (tag 0x0112)."""
    upright = {"L": GREY // 257, "I;16": GREY, "RGB": np.dstack([GREY // 257, GREY // 999, GREY // 500])}[mode]
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.swapaxes(0, 1),
        6: upright.swapaxes(0, 1)[::-1],
        7: upright.swapaxes(0, 1)[::-1, ::-1],
        8: upright.swapaxes(0, 1)[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    pixels = np.ascontiguousarray(stored.astype(np.uint16 if mode == "I;16" else np.uint8))
    Image.fromarray(pixels).save(tmp_path / "image.png", exif=exif)
    expected = np.atleast_3d(upright / (257 if mode == "I;16" else 1))
    np.testing.assert_allclose(read(tmp_path / "image.png", expected.shape[-1]), expected, rtol=1e-6)
