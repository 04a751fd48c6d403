"""Mean average precision of a detector, by pycocotools, in the terms of TFLite's coco_object_detection."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

from tflgpu.api import CompiledModel
from tflgpu.errors import install_command
from tflgpu.evaluate.detector import DETECTOR, detections, detector_outputs
from tflgpu.evaluate.task import Array, Row, Task, key_of
from tflgpu.model.tensor_info import TensorInfo

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
