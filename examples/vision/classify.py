"""Classification: the five likeliest classes of a picture.

    python examples/vision/classify.py models/tf2_mobilenet_v2_1.0_224_ptq.tflite labels/imagenet_labels.txt \
        images/cat.png

Takes any classifier with one image as input, float or quantized. examples/README.md links to this one.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import tflgpu


def probabilities(model: tflgpu.CompiledModel, picture: Image.Image) -> NDArray[np.float32]:
    (wanted,), (given,) = model.inputs, model.outputs
    _, height, width, _ = wanted.shape
    pixels = np.asarray(picture.convert("RGB").resize((width, height), Image.Resampling.BILINEAR))[None]
    if wanted.dtype == "float32":
        pixels = (pixels - np.float32(127.5)) / np.float32(127.5)  # what MobileNet was trained with
    (scores,) = model.run(pixels).values()
    return real_numbers(scores[0], given)


def real_numbers(values: NDArray[Any], info: tflgpu.TensorInfo) -> NDArray[np.float32]:
    """The numbers that a quantized tensor stands for; those of a float tensor as they are."""
    if info.quantization is None:
        return values
    (scale,), (zero_point,) = info.quantization.scale, info.quantization.zero_point
    return np.float32(scale) * (values.astype(np.float32) - zero_point)


def main() -> None:
    parser = argparse.ArgumentParser(description="The five likeliest classes of a picture.")
    parser.add_argument("model", type=Path)
    parser.add_argument("labels", type=Path, help="text file with the name of one class a line")
    parser.add_argument("image", type=Path)
    arguments = parser.parse_args()

    model = tflgpu.compile(arguments.model)
    with Image.open(arguments.image) as picture:
        likely = probabilities(model, picture)
    labels = arguments.labels.read_text().splitlines()
    for index in np.argsort(-likely)[:5]:
        print(f"{likely[index]:6.1%}  {labels[index]}")


if __name__ == "__main__":
    main()
