"""Small sets of images with known answers, cut from real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance

SOURCES = ("bird.png", "cat.png", "dog_segmentation.png", "grace_hopper.png", "hot_dog.jpg")


def varied(shared: Path, folder: Path, count: int) -> list[Path]:
    """Crops, mirror images and other lights of real images, ``count`` of them, always the same."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    sources = []
    for name in SOURCES:
        with Image.open(shared / "images" / name) as file:
            sources.append(file.convert("RGB"))
    paths = []
    for number in range(count):
        image = sources[number % len(sources)]
        left, top = generator.uniform(0, 0.15, 2) * image.size
        right, bottom = generator.uniform(0.85, 1, 2) * image.size
        image = image.crop((round(left), round(top), round(right), round(bottom)))
        if generator.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = ImageEnhance.Brightness(image).enhance(generator.uniform(0.7, 1.3))
        paths.append(folder / f"{number:08}.png")
        image.save(paths[-1])
    return paths


def annotated(shared: Path, folder: Path, annotations: Path, count: int) -> None:
    """Images with one object each, for which COCO's form has a box, and a category by COCO's number."""
    categories = {"bird.png": (16, "bird"), "cat.png": (17, "cat"), "dog_segmentation.png": (18, "dog")}
    categories |= {"grace_hopper.png": (1, "person"), "hot_dog.jpg": (58, "hot dog")}
    data: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    data["categories"] = [{"id": number, "name": name} for number, name in categories.values()]
    generator = np.random.default_rng(0)
    for number, path in enumerate(varied(shared, folder, count), 1):
        with Image.open(path) as image:
            width, height = image.size
        # Not where the object is to the pixel: near it, so that the looser thresholds count and the tighter ones do not.
        left, top = generator.uniform(0.02, 0.12, 2) * (width, height)
        wide, high = generator.uniform(0.7, 0.85, 2) * (width, height)
        category = categories[SOURCES[(number - 1) % len(SOURCES)]][0]
        data["images"].append({"id": number, "file_name": path.name, "width": width, "height": height})
        box = {"bbox": [left, top, wide, high], "area": wide * high, "iscrowd": 0}
        data["annotations"].append({"id": number, "image_id": number, "category_id": category, **box})
    annotations.write_text(json.dumps(data))
