"""Top-1 to Top-10 accuracy of a classifier, as TFLite's imagenet_image_classification counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar

import numpy as np

from tflgpu.api import CompiledModel
from tflgpu.evaluate.task import Array, Row, Task, key_of
from tflgpu.inputs import input_files, read_labels
from tflgpu.model.tensor_info import TensorInfo

# How many of the best classes count.
BEST = 10


@dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """A row keeps the numbers of each engine's best classes, the best first. classes: how many the model has."""

    classes: int

    name: ClassVar[str] = "imagenet"
    crop: ClassVar[float | None] = 0.875

    def positions(self, model: CompiledModel) -> tuple[int, ...]:
        """Return the place of the output that has an element for each class.

        Args:
            model: The classifier.

        Raises:
            ValueError: There is no such output.
        """
        sizes = [prod(info.shape) for info in model.outputs]
        if self.classes not in sizes:
            outputs = ", ".join(
                f"{info.name!r} has {size} elements" for info, size in zip(model.outputs, sizes, strict=True)
            )
            raise ValueError(f"there are {self.classes} labels, but output {outputs}")
        return (sizes.index(self.classes),)

    def answers(self, outputs: Mapping[str, Sequence[Array]], infos: Sequence[TensorInfo]) -> Row:
        """Return the classes of each engine, the most probable first.

        Args:
            outputs: The one output by engine.
            infos: Those of the outputs; not used.
        """
        # A stable sort: among equal scores the first class comes first. Integers are in order as they are.
        orders = {
            engine: np.argsort(-each[0].astype(np.float64).reshape(-1), kind="stable")
            for engine, each in outputs.items()
        }
        return {"best": {engine: order[:BEST].tolist() for engine, order in orders.items()}}


@dataclass(frozen=True)
class LabelledImage:
    """A file, and the label of what it shows."""

    file: Path
    label: str


def labelled_images(folder: Path, labels: Path, known: Sequence[str], denylist: Path | None) -> list[LabelledImage]:
    """Return the images of a folder in alphabetical order, with their labels.

    Args:
        folder: The images.
        labels: A text file; its line n has the label of the n-th image.
        known: The labels of the model.
        denylist: A file with the numbers, from 1 on, of images to leave out, one in a line; None to use all.

    Raises:
        OSError: A file cannot be read.
        ValueError: The files do not fit each other.
    """
    files, truth = input_files(folder), read_labels(labels)
    if len(files) != len(truth):
        raise ValueError(f"{labels} has {len(truth)} labels for the {len(files)} images in {folder}")
    possible = frozenset(known)
    for number, label in enumerate(truth, 1):
        if label not in possible:
            raise ValueError(f"{labels}, line {number}: the model has no label {label!r}")
    denied = _denied(denylist, len(files)) if denylist else set()
    pairs = enumerate(zip(files, truth, strict=True), 1)
    return [LabelledImage(*pair) for number, pair in pairs if number not in denied]


def top_k_accuracies(
    rows: Sequence[Row], images: Sequence[LabelledImage], labels: Sequence[str]
) -> dict[str, list[float]]:
    """Return for each engine the parts of the images whose label is among the best 1, 2, ... 10 classes.

    Args:
        rows: One for each image, in any order.
        images: All images, with their labels.
        labels: Names of the classes; several may have the same one.
    """
    by_file = {row["file"]: row["best"] for row in rows}
    hits: dict[str, list[list[bool]]] = {}
    for image in images:
        for engine, best in by_file[key_of(image.file)].items():
            found = [labels[index] == image.label for index in best]
            hits.setdefault(engine, []).append(np.logical_or.accumulate(found).tolist())
    return {engine: np.mean(each, axis=0).tolist() for engine, each in hits.items()}


def _denied(path: Path, count: int) -> set[int]:
    numbers = set()
    for line, text in enumerate(read_labels(path), 1):
        if not text.strip().isdecimal() or not 1 <= int(text) <= count:
            raise ValueError(f"{path}, line {line}: {text!r} is no number of an image, 1 to {count}")
        numbers.add(int(text))
    return numbers
