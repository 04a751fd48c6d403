"""Inputs to calibrate on where the caller gives none, and models and inputs that differ by what half rounds.

A model that is fed noise alone shows only what noise brings about. So there are smooth pictures with edges as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.declared_metadata import Normalization
from tflgpu.model.metadata import read_metadata
from tflgpu.model.reader import read_model
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.target import HALF_MAX

Array = NDArray[Any]
Floats = NDArray[np.float64]

# Usual scales of float images (mean and std of bytes) where the file names none: 0..1, -1..1, and bytes.
USUAL = (Normalization((0.0,), (255.0,)), Normalization((127.5,), (127.5,)), Normalization((0.0,), (1.0,)))

BYTES = 2  # the place of the last of these

CENTRED = 1  # the place of the scale around zero

TEN = 10  # times the usual scale
TEN_TIMES = 2  # the place of such inputs in those of a check

OFFSET = 30  # deviations by which numbers lie from zero, whose differences are much smaller than they are

LEAST_SIDE = 8  # pixels of an image
LARGEST_SIDE = 64  # of one that is drawn fast
CHANNELS = (1, 3, 4)
SEED = 2026

PICTURE, GAUSSIAN, UNIFORM = "picture", "gaussian", "uniform"
KINDS = (*(PICTURE for _ in range(9)), GAUSSIAN, GAUSSIAN, UNIFORM)


def generated_inputs(infos: Sequence[TensorInfo], declared: Sequence[Normalization | None]) -> list[list[Array]]:
    """Return several sets of inputs.

    Args:
        infos: The model's inputs.
        declared: The normalization that the file gives for each input; None where it gives none.
    """
    return [
        [_input(info, of, number, place) for place, (info, of) in enumerate(zip(infos, declared, strict=True))]
        for number in range(len(KINDS))
    ]


def checked_inputs(infos: Sequence[TensorInfo], declared: Sequence[Normalization | None]) -> list[list[Array]]:
    """Return few sets of inputs: a picture or signal; if the file names no scale, normal numbers, ten times those, and
    such around a number far from zero, which images are not.

    Args:
        infos: The model's inputs.
        declared: The normalization that the file gives for each input; None where it gives none.
    """
    first = [small_picture(info, of, place) for place, (info, of) in enumerate(zip(infos, declared, strict=True))]
    floats = [info for info in infos if np.dtype(info.dtype).kind == "f"]
    kinds: list[tuple[int, int]] = []
    if None in declared and floats:
        kinds += [(1, 0), (TEN, 0)]
        if not all(map(_is_picture, floats)):
            kinds += [(1, OFFSET)]
    return [first, *(_normal(infos, *kind, first) for kind in kinds)]


def _normal(infos: Sequence[TensorInfo], factor: int, mean: int, others: Sequence[Array]) -> list[Array]:
    """Draw normal numbers, around zero where they are an image; those of ``others`` are for inputs of integers."""
    generator = np.random.default_rng((SEED, factor))
    found = []
    for info, other in zip(infos, others, strict=True):
        if np.dtype(info.dtype).kind == "f":
            center = 0 if _is_picture(info) else mean
            found.append((center + factor * generator.standard_normal(info.shape, np.float32)).astype(info.dtype))
        else:
            found.append(other)
    return found


def _is_picture(info: TensorInfo) -> bool:
    """Whether an input is an image, and no matrix, which may be one of a single channel."""
    axes = _image_axes(info.shape)
    return axes is not None and (len(info.shape) > 3 or info.shape[axes[2]] > 1)


def small_picture(info: TensorInfo, declared: Normalization | None = None, place: int = 0) -> Array:
    """Return one input, in which a large image repeats few pixels that are drawn.

    Args:
        info: The input.
        declared: Its normalization; None for the usual scale, which is -1..1 for floats.
        place: Its number among a model's inputs, which differ.
    """
    axes = _image_axes(info.shape)
    drawn = list(info.shape)
    for axis in axes[:2] if axes else ():
        drawn[axis] = min(drawn[axis], LARGEST_SIDE)
    array = _input(replace(info, shape=tuple(drawn)), declared, CENTRED, place)
    for axis in axes[:2] if axes else ():
        places = np.arange(info.shape[axis]) * drawn[axis] // info.shape[axis]
        array = array.take(places, axis)
    return np.ascontiguousarray(array)


def normalizations(model: bytes, inputs: int) -> list[Normalization | None]:
    """Return the normalization that the file's metadata give for each input.

    Args:
        model: The bytes of the file.
        inputs: The number of inputs. Metadata of another number are ignored.
    """
    declared = [each.normalization for each in read_metadata(model).inputs]
    return declared if len(declared) == inputs else [None] * inputs


def scales(declared: Sequence[Normalization | None]) -> list[int]:
    """Return the size of each set of inputs as a number: outputs of sets with equal numbers can be compared.

    Args:
        declared: The normalization that the file gives for each input; None where it gives none.
    """
    return [
        int(None in declared and kind == PICTURE and number % len(USUAL) == BYTES) for number, kind in enumerate(KINDS)
    ]


def _input(info: TensorInfo, declared: Normalization | None, number: int, place: int) -> Array:
    generator = np.random.default_rng((SEED, number, place) if place else (SEED, number))
    dtype, kind = np.dtype(info.dtype), KINDS[number]
    axes = _image_axes(info.shape)
    if dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize >= 4):
        return generator.integers(0, 2, info.shape).astype(dtype)  # perhaps indices, which may be out of range
    if axes is None:
        unit = _signal(info.shape, generator, kind)
    elif kind == PICTURE:
        unit = _picture(info.shape, axes, generator)
    else:
        unit = _noise(info.shape, generator, kind)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.rint(limits.min + unit * (limits.max - limits.min)).astype(dtype)
    if axes is None:
        return (2 * unit - 1).astype(dtype)
    if kind != PICTURE and declared is None:
        return (2 * unit - 1).astype(dtype)
    normalization = declared or USUAL[number % len(USUAL)]
    channel = -1 if axes[2] == len(info.shape) - 1 else axes[2]
    mean, std = (_along(each, info.shape, channel) for each in (normalization.mean, normalization.std))
    return ((255 * unit - mean) / std).astype(dtype)


def _image_axes(shape: Sequence[int]) -> tuple[int, int, int] | None:
    """Return the axes of height, width and channels; None for what is no image."""
    rank = len(shape)
    for axes in ((rank - 3, rank - 2, rank - 1), (rank - 2, rank - 1, rank - 3)):
        if rank >= 3 and min(shape[axes[0]], shape[axes[1]]) >= LEAST_SIDE and shape[axes[2]] in CHANNELS:
            return axes
    return None


def _along(numbers: tuple[float, ...], shape: Sequence[int], axis: int) -> Floats:
    """Return a number for each channel, or the first one for all of them, to be broadcast."""
    if len(numbers) != shape[axis]:
        return np.array(numbers[0])
    place = [1] * len(shape)
    place[axis] = -1
    return np.array(numbers).reshape(place)


def _noise(shape: Sequence[int], generator: np.random.Generator, kind: str) -> Floats:
    if kind == GAUSSIAN:
        return np.clip(generator.normal(0.5, 1 / 3, shape), 0, 1)
    return generator.random(shape)


def _signal(shape: Sequence[int], generator: np.random.Generator, kind: str) -> Floats:
    """Noise, or waves along the longest axis."""
    if kind != PICTURE or not shape:
        return _noise(shape, generator, kind)
    axis = int(np.argmax(shape))
    place = [1] * len(shape)
    place[axis] = -1
    time = np.linspace(0, 1, shape[axis]).reshape(place)
    waves = sum(np.sin(2 * np.pi * (generator.uniform(1, 200) * time + generator.random())) for _ in range(6))
    return np.clip(0.5 + 0.12 * waves + 0.05 * generator.normal(size=shape), 0, 1)


def _picture(shape: Sequence[int], axes: tuple[int, int, int], generator: np.random.Generator) -> Floats:
    """Gradients and textures of all sizes, and shapes with edges, in colours."""
    height, width, channels = (shape[axis] for axis in axes)
    images = []
    for _ in range(int(np.prod(shape)) // (height * width * channels)):
        image = _texture(height, width, channels, generator)
        y, x = np.mgrid[0:height, 0:width] / height
        for size in np.geomspace(0.4, 0.02, 40):
            cy, cx, ry, rx = generator.random(4) * (1, 1, size, size) + (0, 0, 0.01, 0.01)
            inside = ((y - cy) / ry) ** 2 + ((x - cx) / rx) ** 2 < 1
            if generator.random() < 0.4:
                inside = (abs(y - cy) < ry) & (abs(x - cx) < rx)
            image[inside] = 0.3 * image[inside] + 0.7 * generator.choice([0.0, 1.0, generator.random()], channels)
        image += generator.normal(0, 0.02, image.shape)
        images.append(np.clip(image, 0, 1))
    stacked = np.array(images).reshape(*shape[: len(shape) - 3], height, width, channels)
    return stacked if axes[2] == len(shape) - 1 else np.moveaxis(stacked, -1, -3)


def _texture(height: int, width: int, channels: int, generator: np.random.Generator) -> Floats:
    """Return the sum of noise of all sizes, with most of the coarsest, over the whole range of 0 to 1."""
    image = np.zeros((height, width, channels))
    cells, strength = 2, 1.0
    while cells < min(height, width):
        rows, columns = (np.linspace(0, cells, n, endpoint=False).astype(int) for n in (height, width))
        down, across = (np.linspace(0, cells, n, endpoint=False) % 1 for n in (height, width))
        grid = generator.random((cells + 1, cells + 1, 1)) + 0.5 * generator.random((cells + 1, cells + 1, channels))
        upper = grid[rows][:, columns] * (1 - across)[:, None] + grid[rows][:, columns + 1] * across[:, None]
        lower = grid[rows + 1][:, columns] * (1 - across)[:, None] + grid[rows + 1][:, columns + 1] * across[:, None]
        image += strength * (upper * (1 - down)[:, None, None] + lower * down[:, None, None])
        cells, strength = 2 * cells, 0.6 * strength
    image -= image.min()
    return image / (image.max() or 1)


UNIT = 2.0**-11  # the largest error of half, as a part of a number

# Draws of inputs. A softmax that chooses between two near classes may choose the same one in one of them.
DRAWS = 3

PERTURBATION_SEED = 58


def with_rounded_weights(model: bytes) -> bytes:
    """Return the model with its float matrices rounded to half.

    Args:
        model: The file.
    """
    rounded, begin = bytearray(model), np.frombuffer(model, np.uint8).ctypes.data
    for tensor in (t for subgraph in read_model(model).subgraphs for t in subgraph.tensors):
        data = tensor.data
        if data is not None and data.dtype == np.float32 and data.size > max(data.shape, default=1):
            place = data.ctypes.data - begin
            halves = np.clip(data, -HALF_MAX, HALF_MAX).astype(np.float16)
            rounded[place : place + data.nbytes] = halves.astype(np.float32).tobytes()
    return bytes(rounded)


def perturbed(inputs: Sequence[Array]) -> Iterator[list[Array]]:
    """Yield :data:`DRAWS` sets of inputs whose floats differ from these by what half rounds at most.

    Args:
        inputs: One set. Integers stay as they are.
    """
    generator = np.random.default_rng(PERTURBATION_SEED)
    for _ in range(DRAWS):
        yield [
            (x * (1 + UNIT * generator.uniform(-1, 1, x.shape))).astype(x.dtype) if x.dtype.kind == "f" else x
            for x in inputs
        ]
