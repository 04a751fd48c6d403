"""Kernels of non-maximum suppression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.portable.reduction_kernels import LARGE_GROUP, LONG
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import fits_local, shared_workspace
from tflgpu.ops.image.detection import AnchoredBoxes, Suppress

# Rough operations for each candidate: a heap is made of them, and some are compared with what was found.
COST = 32


@dataclass(frozen=True, kw_only=True)
class AnchoredBoxesParameters(ItemParameters, template="portable/detection/anchored_boxes"):
    """Parameters of ``templates/portable/detection/anchored_boxes.cl.j2``."""

    scales: tuple[float, float, float, float]
    anchors: Storage
    src: Storage


@PORTABLE.lowering("anchored_boxes")
def anchored_boxes(request: Request) -> Kernel:
    """The corners of boxes."""
    attributes = request.node.attributes
    assert isinstance(attributes, AnchoredBoxes)
    anchors = request.activation("anchors", 1)
    parameters = AnchoredBoxesParameters(
        scales=attributes.scales, anchors=replace(request.input(1), type=anchors.type), src=request.input(0)
    )
    return item_kernel(request, parameters, [request.activation("src", 0), anchors], COST)


@dataclass(frozen=True, kw_only=True)
class SuppressParameters(Parameters, template="portable/detection/suppress"):
    """Parameters of ``templates/portable/detection/suppress.cl.j2``."""

    count: int
    candidates: int
    by_channel: bool
    first: int
    overlap: float
    least: float
    soft: bool
    spread: float
    detects: bool
    absent_place: float
    absent_score: float
    scores_at: int
    count_at: int
    candidates_at: int
    length: int
    scores: Storage
    boxes: Storage


@dataclass(frozen=True, kw_only=True)
class SuppressInOrderParameters(SuppressParameters, ItemParameters, template="portable/detection/suppress_in_order"):
    """Parameters of ``templates/portable/detection/suppress_in_order.cl.j2``."""


@PORTABLE.lowering("suppress")
def suppress(request: Request) -> Kernel:
    """The work-items of a group share a row of scores. A work-item that is alone goes through it in order."""
    attributes, scores, boxes, target = request.node.attributes, request.input(0), request.input(1), request.target
    assert isinstance(attributes, Suppress)
    values: dict[str, Any] = {
        "count": attributes.count,
        "candidates": attributes.boxes,
        "by_channel": scores.pixels == 1 and attributes.rows == 1,
        "first": attributes.first,
        "overlap": attributes.overlap,
        "least": attributes.score,
        "soft": attributes.sigma > 0,
        "spread": -0.5 / attributes.sigma if attributes.sigma else 0.0,
        "detects": attributes.detects,
        "absent_place": attributes.absent[0],
        "absent_score": attributes.absent[1],
        "scores_at": attributes.scores_at,
        "count_at": attributes.count_at,
        "candidates_at": attributes.candidates_at,
        "length": attributes.length,
        "scores": scores,
        "boxes": boxes,
    }
    arguments = request.activation("scores", 0), request.activation("boxes", 1)
    size = target.local_size
    if target.executor == "launch" and attributes.boxes >= LONG * size:
        size = replace(target, group=LARGE_GROUP).local_size
    if target.family != "gpu" or size < 2 or size & (size - 1) or not fits_local(target, size):
        return item_kernel(
            request, SuppressInOrderParameters(**values), arguments, COST * attributes.boxes, items=attributes.rows
        )
    return Kernel(
        SuppressParameters(**values),
        arguments,
        tiles=attributes.rows,
        local_size=size,
        workspace=shared_workspace(size, size, 1),
    )
