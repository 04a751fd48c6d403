"""The answers of detectors that end in TFLite_Detection_PostProcess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.tensor_info import TensorInfo
from tflgpu.report.report import Report

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
