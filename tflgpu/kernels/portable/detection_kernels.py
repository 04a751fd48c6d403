"""Kernels of non-maximum suppression."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.portable.reduction_kernels import REDUCTION
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import fits_local
from tflgpu.ops.image.detection import AnchoredBoxes, Suppress
from tflgpu.target import ITEM_BYTES

# Rough operations for each candidate: a heap is made of them, and some are compared with what was found.
COST = 32

# Bits of the digits by which the GPU's kernel selects candidates: a work-group goes through the counts of one.
DIGIT_BITS = 6


@dataclass(frozen=True, kw_only=True)
class AnchoredBoxesParameters(ItemParameters, template="portable/detection/anchored_boxes", stores_once=True):
    """Parameters of ``templates/portable/detection/anchored_boxes.cl.j2``."""

    scales: tuple[float, float, float, float]
    anchors: Storage
    src: Storage


@PORTABLE.lowering("anchored_boxes")
def anchored_boxes(request: Request) -> Kernel:
    """Return the corners of boxes."""
    attributes = request.attributes(AnchoredBoxes)
    anchors = request.activation("anchors", 1)
    parameters = AnchoredBoxesParameters(
        scales=attributes.scales, anchors=replace(request.input(1), type=anchors.type), src=request.input(0)
    )
    return item_kernel(request, parameters, [request.activation("src", 0), anchors], COST)


@dataclass(frozen=True, kw_only=True)
class SuppressionParameters(Parameters):
    """Parameters of all templates of non-maximum suppression."""

    suppression: Suppress
    by_channel: bool
    scores: Storage
    boxes: Storage


@dataclass(frozen=True, kw_only=True)
class SuppressInOrderParameters(SuppressionParameters, ItemParameters, template="portable/detection/suppress_in_order"):
    """Parameters of ``templates/portable/detection/suppress_in_order.cl.j2``."""

    soft: bool
    spread: float


@dataclass(frozen=True, kw_only=True)
class SuppressParameters(SuppressionParameters, template="portable/detection/suppress"):
    """Parameters of ``templates/portable/detection/suppress.cl.j2``."""

    spread: float


@dataclass(frozen=True, kw_only=True)
class SuppressInBatchesParameters(SuppressionParameters, template="portable/detection/suppress_in_batches"):
    """Parameters of ``templates/portable/detection/suppress_in_batches.cl.j2``."""

    place_bits: int
    digit_bits: int
    top_digit: int


@PORTABLE.lowering("suppress")
def suppress(request: Request) -> Kernel:
    """Return the work-items of a group share a row of scores. A work-item that is alone goes through it in order.

    Where overlaps lower scores, each box that is found takes a pass over all candidates; else few are looked at.
    """
    attributes, scores, boxes, target = request.attributes(Suppress), request.input(0), request.input(1), request.target
    values: dict[str, Any] = {
        "suppression": attributes,
        "by_channel": scores.pixels == 1 and attributes.rows == 1,
        "scores": scores,
        "boxes": boxes,
    }
    spread = -0.5 / attributes.sigma if attributes.sigma else 0.0
    arguments = request.activation("scores", 0), request.activation("boxes", 1)
    size = target.local_size
    if target.executor == "launch" and attributes.boxes >= REDUCTION.long * size:
        size = replace(target, group=REDUCTION.large_group).local_size
    batches = _batches_vec4s(size)
    if target.family != "gpu" or size < 2 or size & (size - 1) or not fits_local(target, batches):
        in_order = SuppressInOrderParameters(**values, soft=attributes.sigma > 0, spread=spread)
        return item_kernel(request, in_order, arguments, COST * attributes.boxes, items=attributes.rows)
    parameters: Parameters
    if attributes.sigma > 0:
        parameters, workspace = SuppressParameters(**values, spread=spread), size
    else:
        place_bits = (attributes.boxes - 1).bit_length()
        top_digit = (8 * ITEM_BYTES["float"] + place_bits - 1) // DIGIT_BITS * DIGIT_BITS
        parameters = SuppressInBatchesParameters(
            **values, place_bits=place_bits, digit_bits=DIGIT_BITS, top_digit=top_digit
        )
        workspace = batches
    return Kernel(parameters, arguments, tiles=attributes.rows, local_size=size, workspace=workspace)


def _batches_vec4s(size: int) -> int:
    """Local memory for batches of ``size`` candidates: a box and two keys for each, and words of bits and counts."""
    words = -(-size // 32) + 1 + (1 << DIGIT_BITS)
    return 2 * size + -(-words // 4)
