"""Segmentation: which pixels belong to what, as colours over the picture with a legend.

    python examples/vision/segment.py models/deeplabv3_257_mv_gpu.tflite labels/pascal_voc_segmentation_labels.txt \
        images/bird_segmentation.png --out segmented.png

Takes float models that give a score of each class for each pixel, such as DeepLabV3.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import tflgpu

BACKGROUND = 0
COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#42d4f4", "#f032e6", "#9a6324")


def segment(path: Path, picture: Image.Image) -> NDArray[np.intp]:
    """The class of each pixel of the picture."""
    (wanted,) = tflgpu.inspect(path).model.inputs
    # The picture goes to the device as bytes, which computes (byte - 127.5) / 127.5 there.
    model = tflgpu.compile(path, tflgpu.Options(interface=tflgpu.Interface(uint8_inputs={wanted.name: (127.5, 127.5)})))
    _, height, width, _ = wanted.shape
    pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))[None]
    (scores,) = model.run(pixels).values()

    # Scores are enlarged, not classes: that leaves smooth edges. Only the classes that win somewhere matter.
    present = np.unique(scores[0].argmax(axis=-1))
    planes = (Image.fromarray(scores[0, ..., c]).resize(picture.size, Image.Resampling.BILINEAR) for c in present)
    classes: NDArray[np.intp] = present[np.argmax([np.asarray(plane) for plane in planes], axis=0)]
    return classes


def overlay(picture: Image.Image, classes: NDArray[np.intp], names: dict[int, str]) -> Image.Image:
    result = picture.copy()
    for colour, index in zip(COLOURS, names, strict=False):
        mask = Image.fromarray((classes == index).astype(np.uint8) * 150)  # of 255: the picture shines through
        result.paste(colour, mask=mask)
    draw_legend(ImageDraw.Draw(result), list(names.values()), picture.width / 28)
    return result


def draw_legend(canvas: ImageDraw.ImageDraw, names: list[str], size: float) -> None:
    font, line, gap = ImageFont.load_default(size), size * 1.5, size / 2
    width = max((canvas.textlength(name, font) for name in names), default=0)
    canvas.rounded_rectangle((gap, gap, width + 4 * gap + size, line * len(names) + 2 * gap), gap, fill="#202020")
    for row, (colour, name) in enumerate(zip(COLOURS, names, strict=False)):
        top = 1.5 * gap + row * line
        canvas.rectangle((2 * gap, top, 2 * gap + size, top + size), fill=colour)
        canvas.text((3 * gap + size, top + size / 2), name, "white", font, anchor="lm")


def main() -> None:
    parser = argparse.ArgumentParser(description="Colour the pixels of a picture by what they show.")
    parser.add_argument("model", type=Path)
    parser.add_argument("labels", type=Path, help="text file with the name of one class a line, background first")
    parser.add_argument("image", type=Path)
    parser.add_argument("--out", type=Path, default=Path("segmented.png"))
    arguments = parser.parse_args()

    with Image.open(arguments.image) as file:
        picture = file.convert("RGB")
    classes = segment(arguments.model, picture)
    labels = arguments.labels.read_text().splitlines()
    areas = {int(index): np.mean(classes == index) for index in np.unique(classes) if index != BACKGROUND}
    largest_first = sorted(areas, key=lambda index: -areas[index])
    for index in largest_first:
        print(f"{labels[index]:12} {areas[index]:6.1%} of the picture")
    overlay(picture, classes, {index: labels[index] for index in largest_first}).save(arguments.out)
    print(f"drawn in {arguments.out}")


if __name__ == "__main__":
    main()
