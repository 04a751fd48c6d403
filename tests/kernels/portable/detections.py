"""A small model of boxes that suppress each other: of all classes, and of each."""

from __future__ import annotations

import numpy as np

from tests.kernels.portable import crops
from tests.ops.case import Net, Tensor
from tests.ops.suppression import Detector, suppressed
from tests.support.row_cases import computed

SCALES = "y_scale", "x_scale", "h_scale", "w_scale"


def found(net: Net) -> Tensor:
    """By options whose sums are exact, and by Soft-NMS. The classes are more than a slice of channels."""
    for per_class in (None, 2):
        options = Detector(3, 5, 1, per_class, 0.5, 0.25, (8.0, 8.0, 2.0, 2.0))
        encoded = np.zeros((1, 9, 4), np.float32)
        encoded[..., :2] = net.rng.integers(-4, 5, (1, 9, 2))
        boxes = net.input(encoded)
        scores = net.input((net.rng.permutation(54).reshape(1, 9, 6) / 64).astype(np.float32))
        anchors = net.constant((net.rng.integers(1, 8, (9, 4)) / 8).astype(np.float32))
        packed = {
            "max_detections": options.most,
            "max_classes_per_detection": options.classes_of_box,
            "num_classes": options.classes,
            "nms_score_threshold": options.least,
            "nms_iou_threshold": options.threshold,
            "detections_per_class": per_class or 1,
            "use_regular_nms": per_class is not None,
            **dict(zip(SCALES, options.scales, strict=True)),
        }
        values = options.detect(boxes.value, scores.value, anchors.value)
        for output in net.ops(
            "TFLite_Detection_PostProcess", [boxes, scores, anchors], values, custom_options=crops.packed(packed)
        ):
            net.output(output)
    boxes, scores = computed(net, (9, 4)), computed(net, (9,))
    limits = 0.5, -1.0, 0.5
    places, kept = suppressed(boxes.value, scores.value, 9, *limits)
    room = np.zeros(9, np.int32), np.zeros(9), np.array(len(places), np.int32)
    room[0][: len(places)], room[1][: len(kept)] = places, kept
    constants = [net.integers(9), *(net.constant(np.array(x, np.float32)) for x in limits)]
    outputs = net.ops("NON_MAX_SUPPRESSION_V5", [boxes, scores, *constants], room)
    net.output(outputs[0])
    net.output(outputs[2])
    return outputs[1]
