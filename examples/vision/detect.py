"""Detection: the objects of a picture, with boxes drawn around them.

    python examples/vision/detect.py models/coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite labels/coco_labels.txt \
        images/face.jpg --threshold 0.55 --out detected.png

Takes any detector that ends in TFLite_Detection_PostProcess, which runs on the device like the rest of the network.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import tflgpu

COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#9467bd", "#b8660b", "#0b8a8f")


class Detection(NamedTuple):
    """box: left, top, right, bottom in pixels of the picture."""

    class_id: int
    score: float
    box: tuple[float, float, float, float]


def detect(model: tflgpu.CompiledModel, picture: Image.Image, threshold: float) -> Iterator[Detection]:
    _, height, width, _ = model.inputs[0].shape
    pixels = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))[None]
    boxes, class_ids, scores, _ = model.run(pixels).values()  # the best come first
    for box, class_id, score in zip(boxes[0].clip(0, 1), class_ids[0], scores[0], strict=True):
        if score >= threshold:
            top, left, bottom, right = box.tolist()  # parts of the height and width
            box = left * picture.width, top * picture.height, right * picture.width, bottom * picture.height
            yield Detection(int(class_id), float(score), box)


def draw(picture: Image.Image, found: list[Detection], labels: list[str]) -> None:
    canvas, font = ImageDraw.Draw(picture), ImageFont.load_default(picture.width / 36)
    coloured = list(zip(found, cycle(COLOURS), strict=False))
    for detection, colour in coloured:
        canvas.rectangle(detection.box, outline=colour, width=max(2, picture.width // 170))
    for detection, colour in coloured:  # on top of all boxes
        caption = f"{labels[detection.class_id]} {detection.score:.0%}"
        _, _, right, bottom = canvas.textbbox((0, 0), caption, font)
        width, height = right + 8, bottom + 6
        left, top = (
            max(detection.box[2] - width, 0),
            max(detection.box[1] - height, 0),
        )  # above the box if there is room
        canvas.rectangle((left, top, left + width, top + height), fill=colour)
        canvas.text((left + 4, top + height / 2), caption, "white", font, anchor="lm")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw boxes around the objects of a picture.")
    parser.add_argument("model", type=Path)
    parser.add_argument("labels", type=Path, help="text file: line n is the class with number n")
    parser.add_argument("image", type=Path)
    parser.add_argument("--out", type=Path, default=Path("detected.png"))
    parser.add_argument("--threshold", type=float, default=0.5)
    arguments = parser.parse_args()

    model = tflgpu.compile(arguments.model)
    labels = arguments.labels.read_text().splitlines()
    with Image.open(arguments.image) as file:
        picture = file.convert("RGB")
    found = list(detect(model, picture, arguments.threshold))
    for detection in found:
        left, top, right, bottom = (round(side) for side in detection.box)
        print(f"{labels[detection.class_id]:12} {detection.score:4.0%}  {left},{top} to {right},{bottom}")
    draw(picture, found, labels)
    picture.save(arguments.out)
    print(f"drawn in {arguments.out}")


if __name__ == "__main__":
    main()
