"""How pixels become what an image input takes, judged by LiteRT and numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tflgpu
from tests.cli.command import MODEL
from tests.support import litert
from tests.support.models import Builder
from tflgpu.inputs import InputReader
from tflgpu.inputs.images import Preprocessing, normalization_of
from tflgpu.model.declared_metadata import Normalization
from tflgpu.model.tensor_info import Quantization, TensorInfo

PIXELS = np.random.default_rng(0).integers(256, size=(37, 53, 3), dtype=np.uint8)


def info(size: tuple[int, int], dtype: str = "float32", channels: int = 3) -> TensorInfo:
    quantization = None if dtype == "float32" else Quantization((1 / 127,), (3,), 0)
    return TensorInfo("image", (1, *size, channels), dtype, quantization)


@pytest.mark.parametrize("size", [(5, 7), (37, 53), (64, 60)])
def test_sampling_is_that_of_litert(size: tuple[int, int]) -> None:
    pytest.importorskip("ai_edge_litert")
    builder = Builder()
    x = builder.input((1, *PIXELS.shape), name="x")
    y = builder.add("RESIZE_BILINEAR", [x, builder.ints(size)], (1, *size, 3), name="y")
    (expected,) = litert.run(builder.finish([y]), PIXELS[None].astype(np.float32)).values()
    got = Preprocessing(Normalization((0,), (1,)), antialias=False).apply(PIXELS, info(size))
    np.testing.assert_allclose(got, expected[0], rtol=1e-5, atol=1e-3)


def test_sampling_rounds_as_the_reference_kernel() -> None:
    """Its loop, product by product in single precision: what is then cut to 8 bits must not be just below."""
    got = Preprocessing(Normalization((0,), (1,)), antialias=False).apply(PIXELS, info((11, 17)))
    one, pixels = np.float32(1), PIXELS.astype(np.float32)
    for y, x in np.ndindex(11, 17):
        down, across = np.float32(y) * np.float32(37 / 11), np.float32(x) * np.float32(53 / 17)
        top, left = int(down), int(across)
        dy, dx = down - np.float32(top), across - np.float32(left)
        expected = pixels[top, left] * (one - dy) * (one - dx)
        expected = expected + pixels[min(top + 1, 36), left] * dy * (one - dx)
        expected = expected + pixels[top, min(left + 1, 52)] * (one - dy) * dx
        expected = expected + pixels[min(top + 1, 36), min(left + 1, 52)] * dy * dx
        np.testing.assert_array_equal(got[y, x], expected)


@pytest.mark.parametrize(("size", "top", "left"), [((37, 53), 3, 11), ((53, 37), 11, 3), ((40, 40), 3, 3)])
def test_the_crop_is_a_square_in_the_middle(size: tuple[int, int], top: int, left: int) -> None:
    """The corners that tensorflow/lite/tools/evaluation computes: round(0.875 * side), round((size - side) / 2)."""
    pixels = np.random.default_rng(1).integers(256, size=(*size, 3), dtype=np.uint8)
    side = round(0.875 * min(size))
    whole = Preprocessing(Normalization((0,), (1,)), crop=0.875).apply(pixels, info((side, side)))
    np.testing.assert_array_equal(whole, pixels[top : top + side, left : left + side])


def test_what_is_known_of_an_input_decides() -> None:
    declared = Normalization((1, 2, 3), (4,))
    assert normalization_of(info((2, 2)), None, None, None) == Normalization((127.5,), (127.5,))
    assert normalization_of(info((2, 2)), declared, None, None) == declared
    assert normalization_of(info((2, 2)), declared, 0, None) == Normalization((0,), (127.5,))
    assert normalization_of(info((2, 2), "uint8"), declared, None, None) is None
    assert normalization_of(info((2, 2), "int8"), declared, None, 255) == Normalization((127.5,), (255,))
    assert normalization_of(info((2, 2), "int16"), None, None, None) == Normalization((127.5,), (127.5,))


@pytest.mark.parametrize(("dtype", "zero_point"), [("uint8", 0), ("int8", -128)])
def test_images_are_quantized(tmp_path: Path, dtype: str, zero_point: int) -> None:
    """0..1 in 255 steps: the pixels pass through, but for the zero point."""
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 15
    Image.fromarray(pixels).save(tmp_path / "image.png")
    info = TensorInfo("image", (1, 2, 3, 3), dtype, Quantization((1 / 255,), (zero_point,), 0))
    (array,) = InputReader(b"", [info], mean=0, std=255).read([tmp_path / "image.png"])
    assert array.dtype == dtype
    np.testing.assert_array_equal(array[0].astype(int), pixels.astype(int) + zero_point)


@pytest.mark.parametrize(("dtype", "offset"), [("uint8", 0), ("int8", -128)])
def test_8_bits_take_pixels_as_they_are(dtype: str, offset: int) -> None:
    size = PIXELS.shape[:2]
    got = InputReader(MODEL, [info(size, dtype)]).image(PIXELS)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(int), PIXELS.astype(int) + offset)


def test_channels_are_normalized_each() -> None:
    got = Preprocessing(Normalization((10, 20, 30), (2, 4, 8))).apply(PIXELS, info((37, 53)))
    np.testing.assert_allclose(got, (PIXELS - np.array([10.0, 20, 30])) / [2, 4, 8], rtol=1e-6)
    with pytest.raises(ValueError, match="normalize 3 channels, but input 'image' has 1"):
        Preprocessing(Normalization((1, 2, 3), (1,))).apply(PIXELS[..., :1], info((2, 2), channels=1))


def test_images_in_memory_have_to_fit() -> None:
    with pytest.raises(ValueError, match=r"takes \[height, width, 3\]"):
        InputReader(b"", [info((2, 2))]).image(PIXELS[..., :1])
    with pytest.raises(ValueError, match="which no image fits"):
        InputReader(b"", [TensorInfo("x", (1, 4), "float32", None)]).image(PIXELS)


def test_images_are_normalized_as_the_metadata_say(shared: Path, tmp_path: Path) -> None:
    """0..1 for this one; a model without metadata has -1..1."""
    path = tmp_path / "white.png"
    Image.new("RGB", (8, 8), "white").save(path)
    for name, black in (("selfie_segmenter", 0), ("deeplabv3_257_mv_gpu", -1)):
        model = shared / "models" / f"{name}.tflite"
        infos = tflgpu.inspect(model).model.inputs
        reader = InputReader(model, infos)
        assert (reader.read([path])[0] == 1).all()
        np.testing.assert_allclose(reader.image(np.zeros((8, 8, 3), np.uint8)), black)
