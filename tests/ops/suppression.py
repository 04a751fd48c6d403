"""Non-maximum suppression in float64 numpy, written to be evidently right: each box against all that were found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.ops.reference import Array


def overlap(a: Array, b: Array) -> float:
    """The intersection of two boxes divided by their union; corners come in any order."""
    (y0, x0), (y1, x1) = np.sort(a.reshape(2, 2), 0)
    (v0, u0), (v1, u1) = np.sort(b.reshape(2, 2), 0)
    areas = (y1 - y0) * (x1 - x0), (v1 - v0) * (u1 - u0)
    both = max(min(y1, v1) - max(y0, v0), 0.0) * max(min(x1, u1) - max(x0, u0), 0.0)
    return both / (sum(areas) - both) if min(areas) > 0 else 0.0


def suppressed(
    boxes: Array, scores: Array, most: int, threshold: float, least: float, sigma: float = 0.0
) -> tuple[list[int], list[float]]:
    """NON_MAX_SUPPRESSION_V5: the places and scores of what is found. Of equal scores the first comes first.

    A box that was found stays a candidate. If it has an area, it suppresses itself.
    """
    left = {i: float(score) for i, score in enumerate(scores) if score > least}
    most = min(most, len(left))
    found: list[int] = []
    kept: list[float] = []
    while left and len(found) < most:
        best = max(left, key=lambda i: (left[i], -i))
        found.append(best)
        kept.append(left[best])
        for i in list(left):
            share = overlap(boxes[i], boxes[best])
            left[i] *= np.exp(-0.5 * share**2 / sigma) if sigma > 0 else 1.0
            if share >= threshold or not left[i] > least:
                del left[i]
    return found, kept


@dataclass(frozen=True)
class Detector:
    """The options of TFLite_Detection_PostProcess. per_class: None for the fast variant."""

    most: int
    classes: int
    classes_of_box: int
    per_class: int | None
    threshold: float
    least: float
    scales: tuple[float, float, float, float]

    def boxes(self, encoded: Array, anchors: Array) -> Array:
        """The corners: least and greatest y and x."""
        scaled = encoded[:, :4] / np.array(self.scales)
        centre = scaled[:, :2] * anchors[:, 2:] + anchors[:, :2]
        half = 0.5 * np.exp(scaled[:, 2:]) * anchors[:, 2:]
        return np.concatenate([centre - half, centre + half], 1)

    def detect(self, encoded: Array, scores: Array, anchors: Array) -> list[Array]:
        """Corners, classes, scores, and how many boxes are meant."""
        boxes, scores = self.boxes(encoded[0], anchors), scores[0, :, -self.classes :]
        slots: list[tuple[int, int]] = []
        if self.per_class is None:
            found = self._found(boxes, scores.max(1), self.most)
            kept = min(self.classes, self.classes_of_box)
            slots = [(i, c) for i in found for c in np.argsort(-scores[i], kind="stable")[:kept]]
        else:
            each = [(i, c) for c in range(self.classes) for i in self._found(boxes, scores[:, c], self.per_class)]
            slots = sorted(each, key=lambda slot: -scores[slot])[: self.most]
            found = [i for i, _ in slots]
        room = self.most * self.classes_of_box
        results = np.zeros((1, room, 4)), np.zeros((1, room)), np.zeros((1, room))
        for n, (i, c) in enumerate(slots):
            for result, value in zip(results, (boxes[i], c, scores[i, c]), strict=True):
                result[0, n] = value
        return [*results, np.array([len(found)], np.float64)]

    def _found(self, boxes: Array, scores: Array, most: int) -> list[int]:
        left = [i for i in np.argsort(-scores, kind="stable") if scores[i] >= self.least]
        found: list[int] = []
        for i in left:
            if len(found) < most and all(overlap(boxes[i], boxes[j]) <= self.threshold for j in found):
                found.append(int(i))
        return found
