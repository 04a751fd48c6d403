"""Non-maximum suppression: NON_MAX_SUPPRESSION_V4 and V5, and the custom operator TFLite_Detection_PostProcess.

How many boxes are found depends on the numbers. The results have room for the greatest number of them, which is a
constant; a count says how many are meant, and all others are zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.graph.layout import LANES, Shape
from tflgpu.model.operator_options import map_of_options
from tflgpu.ops.arithmetic.reduction import reduce_node
from tflgpu.ops.arithmetic.scan import TopK
from tflgpu.ops.declaration import Emitter, Site, declare, judged, static
from tflgpu.ops.movement.indexing import Gather, Lookup, Position, follow
from tflgpu.ops.movement.shaping import AxisMap, Rearrange, reshape_node
from tflgpu.ops.sized import Number, Results, SizedOperation, amount_of

# Kernels hold the places of boxes in floats, which count to here.
MOST_BOXES = 1 << 24

CORNERS = 4


@dataclass(frozen=True)
class Suppress:
    """Inputs: scores and the corners [boxes, 4] of boxes. The boxes of the greatest scores that do not overlap.

    The output is [rows, 1, 1, :attr:`length`]: for each row of scores, which is a channel of input 0 from ``first`` on
    if that has a pixel for each box, ``count`` indices of boxes, their ``count`` scores, and the number of boxes
    that were found. What comes after them is the kernel's own.

    overlap: the intersection of two boxes divided by their union that suppresses the box of the lower score.
    score: the least score.
    sigma: of Soft-NMS: an overlap lowers scores by a Gaussian of this width; 0 for none.
    detects: whether overlaps suppress above ``overlap`` and scores count from ``score`` on, as in
        TFLite_Detection_PostProcess; else overlaps suppress from ``overlap`` on, and scores count above ``score``. Then
        a box of no area, which does not overlap itself, is found again and again.
    absent: place and score where no more boxes were found.
    """

    rows: int
    boxes: int
    count: int
    overlap: float
    score: float
    sigma: float = 0.0
    detects: bool = False
    first: int = 0
    absent: tuple[float, float] = (0.0, 0.0)

    @property
    def scores_at(self) -> int:
        """Where a row has the scores."""
        return -(-self.count // LANES) * LANES

    @property
    def count_at(self) -> int:
        """Where a row has the number of boxes that were found."""
        return 2 * self.scores_at

    @property
    def candidates_at(self) -> int:
        """Where a row has room for the score and the place of each box, and for one number more."""
        return self.count_at + LANES

    @property
    def length(self) -> int:
        """Length of a row."""
        return self.candidates_at + 3 * (-(-self.boxes // LANES) * LANES)


@dataclass(frozen=True)
class AnchoredBoxes:
    """Inputs: encoded boxes and anchors as (y, x, height, width). The corners of the boxes: least and greatest y and x.

    scales: what the four numbers of a box are divided by.
    """

    scales: tuple[float, float, float, float]


def _part(emit: Emitter, found: Tensor, start: int, size: int, shape: Shape) -> Tensor:
    """``size`` numbers of each row of what a ``suppress`` node gives, from ``start`` on."""
    axes = *map(AxisMap, range(3)), AxisMap(3, start)
    part = emit.node("rearrange", [found], (*found.shape[:3], size), Rearrange(axes))
    return reshape_node(emit, part, shape)


def _whole(emit: Emitter, x: Tensor) -> Tensor:
    """Whole numbers that a kernel gives as floats."""
    return emit.node("map", [x], x.shape, None, (EpilogueOp("to_int", (Value(0),)),), "int32")


def _number(site: Site, index: int) -> float:
    return float(site.known(index).reshape(-1)[0])


def _suppression_reasons(site: Site) -> Iterator[str]:
    boxes, scores = site.input(0).shape, site.input(1).shape
    yield from static(site, 2, "greatest number of boxes")
    yield from static(site, 3, "threshold of overlaps")
    yield from static(site, 4, "threshold of scores")
    if len(site.inputs) > 5:
        yield from static(site, 5, "width of Soft-NMS")
    limits = [site.constant(i) for i in range(2, len(site.inputs))]
    if any(value is not None and value.size != 1 for value in limits):
        yield "one of its limits is not one number"
        return
    if any(value is not None and np.isnan(value).any() for value in limits):
        yield "one of its limits is NaN"
    if len(boxes) != 2 or boxes[1] != CORNERS or scores != boxes[:1]:
        yield f"its boxes {list(boxes)} and scores {list(scores)} are not [boxes, 4] and [boxes]"
    elif boxes[0] > MOST_BOXES:
        yield f"it has {boxes[0]} boxes; kernels count to {MOST_BOXES}"
    most = site.constant(2)
    if most is not None and not 0 <= most.reshape(-1)[0] <= MOST_BOXES:
        yield f"its greatest number of boxes is {most.reshape(-1)[0]}"
    if any(grid is not None for grid in site.input_grids[:2]):
        yield "its inputs are quantized, and overlaps of integers are rounded"


def _suppression(site: Site, emit: Emitter) -> list[Tensor]:
    boxes, scores, most = site.input(0), site.input(1), int(_number(site, 2))
    soft = len(site.inputs) > 5
    if most == 0 or boxes.size == 0:
        results = [emit.constant(np.zeros((most,), dtype)) for dtype in (np.int32, *[np.float32] * soft)]
        return [*results, emit.constant(np.zeros((), np.int32))]
    sigma = max(0.0, _number(site, 5)) if soft else 0.0
    node = Suppress(1, boxes.shape[0], most, _number(site, 3), _number(site, 4), sigma)
    found = emit.node("suppress", [scores, boxes], (1, 1, 1, node.length), node, precise=True)
    places = _whole(emit, _part(emit, found, 0, most, (most,)))
    kept = [_part(emit, found, node.scores_at, most, (most,))] * soft
    return [places, *kept, _whole(emit, _part(emit, found, node.count_at, 1, ()))]


def _sized_suppression(op: SizedOperation) -> Results | None:
    """Limit the number of boxes that are found by two others."""
    results = op.declared()
    count, most = results[-1], results[0].size
    if not count.is_constant:
        elements = np.empty((), object)
        elements[()] = amount_of(Number(count.id, 0, count, 0, most))
        op.sizes.elements[count.id] = elements
    return results


for _code, _inputs in {"NON_MAX_SUPPRESSION_V4": 5, "NON_MAX_SUPPRESSION_V5": 6}.items():
    declare(
        _code,
        versions=1,
        inputs=_inputs,
        integers=(2,),
        reasons=_suppression_reasons,
        sized=_sized_suppression,
    )(_suppression)


@dataclass(frozen=True)
class Detection:
    """The options of TFLite_Detection_PostProcess.

    per_class: the most boxes of a class; None if boxes suppress those of all classes.
    """

    most: int
    classes: int
    classes_of_box: int
    per_class: int | None
    overlap: float
    score: float
    scales: tuple[float, float, float, float]


def _detection(options: Mapping[str, Any]) -> Detection | None:
    names = ("max_detections", "num_classes", "max_classes_per_detection")
    counts: list[Any] = [*map(options.get, names), options.get("detections_per_class", 100)]
    thresholds = ("nms_iou_threshold", "nms_score_threshold", "y_scale", "x_scale", "h_scale", "w_scale")
    numbers = [options.get(name) for name in thresholds]
    if not all(isinstance(n, int) and 0 < n <= MOST_BOXES for n in counts):
        return None
    if not all(isinstance(x, int | float) for x in numbers) or 0 in numbers[2:]:
        return None
    overlap, score, y, x, height, width = (float(x) for x in numbers if x is not None)
    most, classes, classes_of_box, per_class = counts
    limit = per_class if options.get("use_regular_nms") else None
    return Detection(most, classes, classes_of_box, limit, overlap, score, (y, x, height, width))


def _detection_reasons(site: Site) -> Iterator[str]:
    boxes, scores, anchors = (site.input(i).shape for i in range(3))
    options = _detection(map_of_options(site.options["custom_options"]))
    if options is None:
        yield "its options are not numbers of boxes and classes, two thresholds and four scales"
    elif not 0 < options.overlap <= 1:
        yield f"its threshold of overlaps is {options.overlap}; a number above 0 and up to 1 was expected"
    elif len(scores) != 3 or not 0 <= scores[2] - options.classes <= 1:
        yield f"its scores have shape {list(scores)}, but its options {options.classes} classes"
    count = boxes[1] if len(boxes) == 3 else 0
    fits = len(boxes) == 3 and boxes[2] >= CORNERS and scores[:2] == boxes[:2] == (1, count)
    if not fits or anchors != (count, CORNERS):
        yield f"its boxes {list(boxes)}, scores {list(scores)} and anchors {list(anchors)} do not fit together"
    elif count > MOST_BOXES:
        yield f"it has {count} boxes; kernels count to {MOST_BOXES}"


@declare("TFLite_Detection_PostProcess", versions=1, inputs=3, empty=False, reasons=_detection_reasons)
def detection_post_process(site: Site, emit: Emitter) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the corners, classes and scores of the boxes that a detector finds, and their number."""
    options = judged(_detection(map_of_options(site.options["custom_options"])))
    encoded, predictions, anchors = (site.input(i) for i in range(3))
    corners = emit.node(
        "anchored_boxes", [encoded, anchors], anchors.shape, AnchoredBoxes(options.scales), precise=True
    )
    emit.keep(predictions)  # near scores would become equal
    if options.per_class is not None:
        return _of_each_class(emit, options, predictions, corners, options.per_class)
    return _of_all_classes(emit, options, predictions, corners)


def _of_all_classes(
    emit: Emitter, options: Detection, predictions: Tensor, corners: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each box has the score of its best class, and suppresses boxes of all classes."""
    background, most, boxes = predictions.shape[2] - options.classes, options.most, corners.shape[0]
    scores = predictions
    if background:  # whose score becomes the least one: to move all others would take longer
        least = emit.constant(np.array([-np.inf, *[np.inf] * options.classes], np.float32))
        lowered = EpilogueOp("minimum", (Input(1), Value(0)))
        scores = emit.node("map", [scores, least], scores.shape, None, (lowered,), precise=True)
    best = reduce_node(emit, scores, "max", (2,))
    node = Suppress(1, boxes, most, options.overlap, options.score, detects=True, absent=(-1.0, 0.0))
    found = emit.node("suppress", [best, corners], (1, 1, 1, node.length), node, precise=True)
    places = _whole(emit, _part(emit, found, 0, most, (most,)))
    positions = Position(()), _looked_up(1, 0), Position(follow(1).terms, background)
    rows = emit.node("gather", [predictions, places], (most, options.classes), Gather(positions, fill=0.0))
    kept = min(options.classes, options.classes_of_box)
    values = emit.node("top_k", [rows], (most, kept), TopK("values"))
    order = emit.node("top_k", [rows], (most, kept), TopK("indices"), dtype="int32")
    valid = reshape_node(emit, _valid(emit, places), (most, 1))
    classes = emit.node("map", [order, valid], order.shape, None, MASKED, "float32", precise=True)
    # A box is repeated for each of its classes.
    per_box = (_looked_up(1, 0), follow(2))
    repeated = emit.node("gather", [corners, places], (most, kept, CORNERS), Gather(per_box, fill=0.0))
    room, slots = (most, options.classes_of_box), most * options.classes_of_box
    return (
        _with_room(emit, repeated, (*room, CORNERS), (1, slots, CORNERS)),
        _with_room(emit, classes, room, (1, slots)),
        _with_room(emit, values, room, (1, slots)),
        _part(emit, found, node.count_at, 1, (1,)),
    )


def _of_each_class(
    emit: Emitter, options: Detection, predictions: Tensor, corners: Tensor, per_class: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Boxes suppress those of the same class; of what is left, the greatest scores."""
    background, rows, boxes = predictions.shape[2] - options.classes, options.classes, corners.shape[0]
    per_class = min(per_class, boxes)
    limits = options.overlap, options.score
    node = Suppress(rows, boxes, per_class, *limits, detects=True, first=background, absent=(-1.0, -np.inf))
    found = emit.node("suppress", [predictions, corners], (rows, 1, 1, node.length), node, precise=True)
    total = rows * per_class
    scores = _part(emit, found, node.scores_at, per_class, (1, total))
    places = _whole(emit, _part(emit, found, 0, per_class, (total,)))
    most = min(options.most, total)
    order = emit.node("top_k", [scores], (1, most), TopK("indices"), dtype="int32")
    order = reshape_node(emit, order, (most,))
    chosen = emit.node("gather", [places, order], (most,), Gather((_looked_up(1, 0),)))
    size = emit.constant(np.array(per_class, np.int32))
    of_class = emit.node("map", [order, size], (most,), None, (EpilogueOp("div", (Value(0), Input(1))),))
    which = _looked_up(1, 0), Position((Lookup(2, (AxisMap(0),), limit=None),), background)
    values = emit.node("gather", [predictions, chosen, of_class], (most,), Gather((Position(()), *which), fill=0.0))
    valid = _valid(emit, chosen)
    classes = emit.node("map", [of_class, valid], (most,), None, MASKED, "float32", precise=True)
    per_box = (_looked_up(1, 0), follow(1))
    found_corners = emit.node("gather", [corners, chosen], (most, CORNERS), Gather(per_box, fill=0.0))
    slots = options.most * options.classes_of_box
    return (
        _with_room(emit, found_corners, (slots, CORNERS), (1, slots, CORNERS)),
        _with_room(emit, classes, (slots,), (1, slots)),
        _with_room(emit, values, (slots,), (1, slots)),
        reduce_node(emit, valid, "sum", (0,)),
    )


# Whole numbers as floats, zero where input 1 is.
MASKED = EpilogueOp("to_float", (Value(0),)), EpilogueOp("mul", (Value(1), Input(1)))


def _valid(emit: Emitter, places: Tensor) -> Tensor:
    """1 for each place of a box, 0 for those of none, which are -1."""
    one = emit.constant(np.array(1, np.int32))
    found = EpilogueOp("add", (Value(0), Input(1))), EpilogueOp("minimum", (Value(1), Input(1)))
    epilogue = *found, EpilogueOp("to_float", (Value(2),))
    return emit.node("map", [places, one], places.shape, None, epilogue, "float32", precise=True)


def _looked_up(input_index: int, axis: int) -> Position:
    """Return the coordinate that an input of indices has for the output's coordinate along ``axis``."""
    return Position((Lookup(input_index, (AxisMap(axis),), limit=None),))


def _with_room(emit: Emitter, x: Tensor, shape: Shape, result: Shape) -> Tensor:
    """Results in the shape of an output: with zeros after their ends up to ``shape``, which becomes ``result``."""
    if x.shape != shape:
        x = emit.node("rearrange", [x], shape, Rearrange(tuple(map(AxisMap, range(len(shape)))), fill=0.0))
    return reshape_node(emit, x, result)
