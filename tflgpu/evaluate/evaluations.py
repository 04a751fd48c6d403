"""Evaluations, counted as TFLite's tools count them: of classifiers, of detectors, and of outputs against LiteRT's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tflgpu.api import CompiledModel
from tflgpu.errors import install_command
from tflgpu.evaluate.accuracy import Deviation, Errors
from tflgpu.evaluate.task import DEVICE, LITERT, Array, Row, Task, key_of
from tflgpu.inputs import input_files, read_labels
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.report.report import Report

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


DETECTOR = "TFLite_Detection_PostProcess"


@dataclass(frozen=True)
class Detection:
    """An object that a detector found. box: top, left, bottom and right as parts of the image's height and width."""

    index: int
    label: str | None
    score: float
    box: tuple[float, ...]


def detector_outputs(report: Report, infos: Sequence[TensorInfo]) -> tuple[str, ...]:
    """Return the names of a detector's outputs: boxes, classes, scores and their number; none for other models.

    Args:
        report: The model's operators.
        infos: The model's outputs.
    """
    known = {info.name for info in infos}
    return next((o.outputs for o in report.operators if o.code == DETECTOR and known.issuperset(o.outputs)), ())


def detections(arrays: Sequence[NDArray[Any]], labels: Sequence[str], top: int) -> tuple[Detection, ...]:
    """Return the best detections in the first image, the one with the highest score first.

    Args:
        arrays: The outputs that :func:`detector_outputs` names.
        labels: Names of the classes; there may be fewer than classes.
        top: Most detections.
    """
    boxes, classes, scores = (array[0] for array in arrays[:3])
    count = int(arrays[3].reshape(-1)[0])
    best = np.argsort(-scores[:count], kind="stable")[:top]
    indices = [int(classes[i]) for i in best]
    names = [labels[c] if c < len(labels) else None for c in indices]
    found = zip(indices, names, scores[best].tolist(), map(tuple, boxes[best].tolist()), strict=True)
    return tuple(Detection(*each) for each in found)


# Labels that files of detectors give to the class that is not counted.
BACKGROUND = ("???", "background")

# Fields that pycocotools needs of each record.
_NEEDED = {
    "images": ("id", "file_name", "width", "height"),
    "categories": ("id", "name"),
    "annotations": ("id", "image_id", "category_id", "bbox", "area", "iscrowd"),
}


class ObjectDetection(Task):
    """A row keeps each engine's detections, the best first: class, score, and the edges of :class:`Detection`."""

    name: ClassVar[str] = "coco"

    def positions(self, model: CompiledModel) -> tuple[int, ...]:
        """Return the places of boxes, classes, scores and their number among the outputs.

        Args:
            model: The detector.

        Raises:
            ValueError: The model does not end in a detection.
        """
        names = [info.name for info in model.outputs]
        found = detector_outputs(model.report, model.outputs)
        if not found:
            raise ValueError(f"the model does not end in {DETECTOR}, whose boxes, classes and scores are evaluated")
        return tuple(map(names.index, found))

    def answers(self, outputs: Mapping[str, Sequence[Array]], infos: Sequence[TensorInfo]) -> Row:
        """Return the detections of each engine.

        Args:
            outputs: The detector's outputs by engine.
            infos: Those of the outputs; not used.
        """
        found = {engine: detections(each, (), each[2].size) for engine, each in outputs.items()}
        return {"detections": {engine: [[d.index, d.score, *d.box] for d in each] for engine, each in found.items()}}


@dataclass(frozen=True)
class Precision:
    """Average precisions, as parts of 1: by intersection over union, their mean, and COCO's twelve numbers."""

    thresholds: dict[float, float]
    mean: float
    stats: tuple[float, ...]


class Annotations:
    """COCO's annotations of images with boxes.

    files: the first ``count`` of them in alphabetical order, or all.
    """

    def __init__(self, path: Path, folder: Path, count: int | None = None) -> None:
        """Raise OSError, or ValueError for a file that is not in COCO's form or without the extra ``evaluate``."""
        try:
            from pycocotools.coco import COCO
        except ImportError:
            raise ValueError(f"pycocotools is not installed; {install_command('evaluate')} brings it") from None

        self.path = path
        self._truth = COCO()
        self._truth.dataset = _read(path)
        with redirect_stdout(StringIO()):
            self._truth.createIndex()
        images = sorted(self._truth.dataset["images"], key=lambda image: str(image["file_name"]))[:count]
        self._images = {folder / str(image["file_name"]): image for image in images}
        self.files = list(self._images)

    def categories(self, labels: Sequence[str]) -> dict[int, int]:
        """Return the annotations' category of each class of a model, by name; classes without one are left out.

        Args:
            labels: Names of the classes; a first one for the background is not counted. Without labels class n is
                category
                n + 1, as TFLite's tool has it.

        Raises:
            ValueError: No label is the name of a category.
        """
        names = {str(c["name"]): int(c["id"]) for c in self._truth.dataset["categories"]}
        if not labels:
            return {number - 1: number for number in names.values()}
        counted = labels[1:] if labels[0] in BACKGROUND else labels
        found = {index: names[label] for index, label in enumerate(counted) if label in names}
        if not found:
            raise ValueError(f"{self.path} has none of the model's labels among its categories: {', '.join(names)}")
        return found

    def precisions(self, rows: Sequence[Row], categories: Mapping[int, int]) -> dict[str, Precision]:
        """Return the precisions of each engine, by pycocotools.

        Args:
            rows: One for each file, in any order.
            categories: The category of each class, by its number.
        """
        by_file = {row["file"]: row["detections"] for row in rows}
        results: dict[str, list[dict[str, Any]]] = {}
        for file, image in self._images.items():
            for engine, found in by_file[key_of(file)].items():
                results.setdefault(engine, []).extend(_results(image, found, categories))
        return {engine: self._precision(each) for engine, each in results.items()}

    def _precision(self, results: list[dict[str, Any]]) -> Precision:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval

        with redirect_stdout(StringIO()):  # it prints what it does
            found = self._truth.loadRes(results) if results else COCO()
            evaluation = COCOeval(self._truth, found, "bbox")
            evaluation.params.imgIds = sorted(image["id"] for image in self._images.values())
            evaluation.evaluate()
            evaluation.accumulate()
            evaluation.summarize()
        # By threshold, recall, category, size of objects (all), and number of detections (100). -1: no such object.
        precision = evaluation.eval["precision"][:, :, :, 0, -1]
        each = [float(p[p > -1].mean()) if (p > -1).any() else -1.0 for p in precision]
        thresholds = [round(float(t), 2) for t in evaluation.params.iouThrs]
        stats = tuple(map(float, evaluation.stats))
        return Precision(dict(zip(thresholds, each, strict=True)), stats[0], stats)


def _results(image: Mapping[str, Any], found: Sequence[Sequence[float]], categories: Mapping[int, int]) -> list[Any]:
    """Return detections as COCO has them: boxes of left, top, width and height in pixels."""
    height, width = image["height"], image["width"]
    return [
        {
            "image_id": image["id"],
            "category_id": categories[int(index)],
            "bbox": [left * width, top * height, (right - left) * width, (bottom - top) * height],
            "score": score,
        }
        for index, score, top, left, bottom, right in found
        if int(index) in categories
    ]


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
        for part, keys in _NEEDED.items():
            for element in data[part]:
                if missing := [key for key in keys if key not in element]:
                    raise ValueError(f"an element of {part!r} has no {', '.join(map(repr, missing))}")
    except KeyError as error:
        raise ValueError(f"{path} has no list {error}, as COCO's annotations of objects do") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} does not hold COCO's annotations of objects: {error}") from error
    if not data["images"]:
        raise ValueError(f"{path} lists no image")
    result: dict[str, Any] = data
    return result


class Difference(Task):
    """A row keeps the errors of each output."""

    name: ClassVar[str] = "diff"
    antialias: ClassVar[bool] = True

    def positions(self, model: CompiledModel) -> tuple[int, ...]:
        """Return the places of all outputs.

        Args:
            model: The model that is compared.
        """
        return tuple(range(len(model.outputs)))

    def answers(self, outputs: Mapping[str, Sequence[Array]], infos: Sequence[TensorInfo]) -> Row:
        """Return the errors of each output beside LiteRT's.

        Args:
            outputs: All outputs by engine.
            infos: Those of the outputs.

        Raises:
            ValueError: The shapes of an output differ.
        """
        pairs = zip(outputs[LITERT], outputs[DEVICE], infos, strict=True)
        return {"errors": [asdict(Errors.of(expected, got, _quantum(info))) for expected, got, info in pairs]}


def deviations(rows: Sequence[Row], infos: Sequence[TensorInfo]) -> list[Deviation]:
    """Return the deviations of each output, over all rows.

    Args:
        rows: One for each file.
        infos: Those of the outputs.
    """
    found = [Deviation(_quantum(info)) for info in infos]
    for row in rows:
        for deviation, errors in zip(found, row["errors"], strict=True):
            deviation.include(Errors(**errors))
    return found


def _quantum(info: TensorInfo) -> float | None:
    return 1.0 if info.quantization else None
