"""Rows of non-maximum suppression.

Corners are multiples of an eighth, scores of 1/256, and thresholds have few digits: all precisions hold these, and an
overlap that equals the threshold does so on every device.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernels.portable import crops
from tests.ops.case import Net, Row, Tensor
from tests.ops.strategies import BOOL
from tests.ops.suppression import Detector, suppressed

BOXES = st.sampled_from((5, 1, 3, 20, 70))
LEAST = st.sampled_from((0.25, 0.0, 2.0))  # of scores: no box reaches 2
THRESHOLD = st.sampled_from((0.5, 0.25, 0.75, 1.0))


def _corners(net: Net, count: int) -> NDArray[np.float32]:
    """Boxes of which many overlap, in any order of corners; some have no area."""
    return (net.rng.integers(0, 9, (count, 4)) / 8).astype(np.float32)


def _scores(net: Net, shape: tuple[int, ...], ties: bool) -> NDArray[np.float32]:
    """From 1/256 to 1 without ties among 256 of them, or of few different values."""
    size = int(np.prod(shape))
    numbers = net.rng.integers(1, 5, size) * 64 if ties else net.rng.permutation(max(size, 256))[:size] % 256 + 1
    return (numbers.reshape(shape) / 256).astype(np.float32)


def suppression(net: Net, soft: bool) -> Tensor:
    count, most = net.draw(BOXES), net.draw(st.sampled_from((3, 1, 0, 80)))
    ties = net.draw(BOOL)
    boxes, scores = net.input(_corners(net, count)), net.input(_scores(net, (count,), ties))
    limits = [net.draw(THRESHOLD), net.draw(LEAST)]
    limits += [net.draw(st.sampled_from((0.5, 0.0)))] if soft else []
    found, kept = suppressed(boxes.value, scores.value, most, *limits)
    if ties:
        net.litert_differs = "which of equal scores comes first is left to a heap of the C++ library"
    numbers = [net.constant(np.array(x, np.float32)) for x in limits]
    places, values = np.zeros(most, np.int32), np.zeros(most)
    places[: len(found)], values[: len(kept)] = found, kept
    results = [places, *[values] * soft, np.array(len(found), np.int32)]
    code = "NON_MAX_SUPPRESSION_V5" if soft else "NON_MAX_SUPPRESSION_V4"
    outputs = net.ops(code, [boxes, scores, net.integers(most), *numbers], results)
    for output in outputs[:-1]:
        net.output(output)
    return outputs[-1]


def detection(net: Net) -> Tensor:
    """Anchors and encodings whose sums are exact; all sizes are those of the anchors."""
    count, classes = net.draw(BOXES), net.draw(st.sampled_from((3, 1)))
    background, regular = net.draw(BOOL), net.draw(BOOL)
    options = Detector(
        most=net.draw(st.sampled_from((3, 1, 12))),
        classes=classes,
        classes_of_box=1 if regular or classes == 1 else net.draw(st.sampled_from((1, 2))),
        per_class=net.draw(st.sampled_from((2, 9))) if regular else None,
        threshold=net.draw(THRESHOLD),
        least=net.draw(LEAST),
        scales=(8.0, 4.0, 2.0, 2.0),
    )
    encoded = np.zeros((1, count, net.draw(st.sampled_from((4, 6)))), np.float32)
    encoded[..., :2] = net.rng.integers(-4, 5, (1, count, 2))
    places, sizes = net.rng.integers(0, 9, (count, 2)) / 8, net.rng.integers(1, 5, (count, 2)) / 4
    boxes, scores = net.input(encoded), net.input(_scores(net, (1, count, classes + background), ties=False))
    anchors = net.constant(np.concatenate([places, sizes], 1).astype(np.float32))
    values = options.detect(boxes.value, scores.value, anchors.value)
    packed = {
        "max_detections": options.most,
        "max_classes_per_detection": options.classes_of_box,
        "num_classes": classes,
        "nms_score_threshold": options.least,
        "nms_iou_threshold": options.threshold,
        **dict(zip(("y_scale", "x_scale", "h_scale", "w_scale"), options.scales, strict=True)),
        **({"use_regular_nms": True, "detections_per_class": options.per_class} if regular else {}),
    }
    if values[3][0] < options.most:
        net.litert_differs = "it leaves what it does not need of its results unwritten"
    outputs = net.ops(
        "TFLite_Detection_PostProcess", [boxes, scores, anchors], values, custom_options=crops.packed(packed)
    )
    for output in outputs[1:]:
        net.output(output)
    return outputs[0]


ROWS = (
    Row("non_max_suppression", "NON_MAX_SUPPRESSION_V4", partial(suppression, soft=False)),
    Row("non_max_suppression_soft", "NON_MAX_SUPPRESSION_V5", partial(suppression, soft=True)),
    Row("detection_post_process", "TFLite_Detection_PostProcess", detection),
)
