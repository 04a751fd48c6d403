"""Models that end in TFLite_Detection_PostProcess."""

from __future__ import annotations

import numpy as np
from flatbuffers import flexbuffers
from numpy.typing import NDArray

from tests.support.models import Builder

ANCHORS, CLASSES, FOUND = 20, 3, 6

Floats = NDArray[np.float32]


def detector() -> bytes:
    """Scores on the device, and TFLite_Detection_PostProcess, whose results the file gives no shapes."""
    options = flexbuffers.Builder()
    with options.Map():
        for name, number in {"max_detections": FOUND, "max_classes_per_detection": 1, "num_classes": CLASSES}.items():
            options.Int(name, number)
        for name, scale in {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0}.items():
            options.Float(name, scale)
        options.Float("nms_score_threshold", 0.3)
        options.Float("nms_iou_threshold", 0.5)
        options.Bool("use_regular_nms", False)
    builder = Builder()
    boxes, logits = (
        builder.input((1, ANCHORS, 4), name="boxes"),
        builder.input((1, ANCHORS, CLASSES + 1), name="logits"),
    )
    scores = builder.add("LOGISTIC", [logits], (1, ANCHORS, CLASSES + 1))
    anchors = builder.constant(np.random.default_rng(1).uniform(0.2, 0.8, (ANCHORS, 4)).astype(np.float32))
    names = ("places", "classes", "scores", "count")
    outputs = [builder.tensor((), name=name) for name in names]
    builder.op("TFLite_Detection_PostProcess", [boxes, scores, anchors], outputs, custom_options=options.Finish())
    return builder.finish(outputs)


def draw(seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    boxes = rng.normal(size=(1, ANCHORS, 4)).astype(np.float32)
    return boxes, rng.normal(size=(1, ANCHORS, CLASSES + 1)).astype(np.float32)
