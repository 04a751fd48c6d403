"""Small sets of images with known answers, cut from real ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance

# A real image, the class of MobileNet that it shows, and COCO's number and name for that.
SOURCES = (
    ("bird.png", "chickadee", (16, "bird")),
    ("cat.png", "Egyptian cat", (17, "cat")),
    ("dog_segmentation.png", "Samoyed", (18, "dog")),
    ("grace_hopper.png", "military uniform", (1, "person")),
    ("hot_dog.jpg", "hotdog", (58, "hot dog")),
)


def labelled_set(shared: Path, folder: Path, count: int) -> tuple[Path, Path]:
    """A folder of images, and the file of their labels."""
    _varied(shared, folder / "images", count)
    labels = folder / "labels.txt"
    labels.write_text("".join(f"{SOURCES[number % len(SOURCES)][1]}\n" for number in range(count)))
    return folder / "images", labels


def annotated_set(shared: Path, folder: Path, count: int) -> tuple[Path, Path]:
    """A folder of images with an object each, and COCO's annotations of them.

    The boxes are near the objects: loose thresholds count them as found, tight ones do not.
    """
    data: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    data["categories"] = [{"id": number, "name": name} for _, _, (number, name) in SOURCES]
    generator = np.random.default_rng(0)
    for number, path in enumerate(_varied(shared, folder / "images", count), 1):
        with Image.open(path) as image:
            width, height = image.size
        left, top = (generator.uniform(0.02, 0.12, 2) * (width, height)).tolist()
        wide, high = (generator.uniform(0.7, 0.85, 2) * (width, height)).tolist()
        category, _ = SOURCES[(number - 1) % len(SOURCES)][2]
        data["images"].append({"id": number, "file_name": path.name, "width": width, "height": height})
        box = {"bbox": [left, top, wide, high], "area": wide * high, "iscrowd": 0}
        data["annotations"].append({"id": number, "image_id": number, "category_id": category, **box})
    annotations = folder / "annotations.json"
    annotations.write_text(json.dumps(data))
    return folder / "images", annotations


def _varied(shared: Path, folder: Path, count: int) -> list[Path]:
    """Crops, mirror images and other lights of the sources in turn, always the same."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    sources = []
    for name, _, _ in SOURCES:
        with Image.open(shared / "images" / name) as file:
            sources.append(file.convert("RGB").resize((320, 240)))
    paths = []
    for number in range(count):
        image = sources[number % len(sources)]
        left, top = (generator.uniform(0, 0.15, 2) * image.size).astype(int).tolist()
        right, bottom = (generator.uniform(0.85, 1, 2) * image.size).astype(int).tolist()
        image = image.crop((left, top, right, bottom))
        if generator.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = ImageEnhance.Brightness(image).enhance(generator.uniform(0.7, 1.3))
        paths.append(folder / f"{number:08}.jpg")
        image.save(paths[-1], quality=90)
    return paths
