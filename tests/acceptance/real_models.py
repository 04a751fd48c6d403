"""Real models, and how far their outputs may be from LiteRT's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Floats = NDArray[np.float32]


# Largest error, as a part of the range of an output's values.
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2, "fp16_fast": 4e-2}


@dataclass(frozen=True)
class RealModel:
    """A model of the shared folder. ``kernels`` is how many an inference takes at most: a lost fusion shows here.

    pixels: the values that black and white become. amplifies: how much more than others it makes of rounding errors.
    """

    name: str
    image: str
    kernels: int
    size: tuple[int, int]
    pixels: tuple[float, float] = (-1.0, 1.0)
    amplifies: float = 1.0

    def path(self, shared: Path) -> Path:
        return shared / "models" / f"{self.name}.tflite"

    def input(self, shared: Path, image: str | None = None) -> Floats:
        """[1, height, width, 3] of the model's image, or another one."""
        with Image.open(shared / "images" / (image or self.image)) as file:
            rgb = np.asarray(file.convert("RGB").resize(self.size[::-1], Image.Resampling.BILINEAR), np.float32)
        low, high = self.pixels
        return rgb[None] * np.float32((high - low) / 255) + np.float32(low)


MOBILENET = RealModel("mobilenet_v1_0.25_224_1_default_1", "cat.png", 29, (224, 224))


def error(got: Floats, expected: Floats) -> float:
    """The largest difference as a part of the expected values' range; of their size where there is only one."""
    assert got.shape == expected.shape
    extent = np.ptp(expected) if expected.size > 1 else np.abs(expected).max()
    return float(np.abs(got - expected).max() / extent)
