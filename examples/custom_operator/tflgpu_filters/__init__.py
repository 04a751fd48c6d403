"""Two custom operators. ``SoftShrink`` is made of functions that tflgpu has; ``RowMedian`` has a kernel of its own."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.ops import Emitter, Site, declare


def _threshold(site: Site) -> float:
    """The custom options are one float in little-endian order."""
    (threshold,) = struct.unpack("<f", site.options["custom_options"])
    return float(threshold)


def _shrink_reasons(site: Site) -> Iterator[str]:
    if len(site.options["custom_options"]) != 4:
        yield "its options are not one float"


@declare("SoftShrink", versions=1, inputs=1, reasons=_shrink_reasons)
def soft_shrink(site: Site, emit: Emitter) -> Tensor:
    """``sign(x) * max(|x| - threshold, 0)``: one elementwise node, which fuses with its neighbours."""
    x = site.input(0)
    threshold = emit.constant(np.array(_threshold(site), np.float32))
    epilogue = (  # value 0 is x, value k + 1 the result of function k
        EpilogueOp("abs", (Value(0),)),
        EpilogueOp("sub", (Value(1), Input(1))),
        EpilogueOp("relu", (Value(2),)),
        EpilogueOp("sign", (Value(0),)),
        EpilogueOp("mul", (Value(3), Value(4))),
    )
    return emit.node("map", [x, threshold], x.shape, epilogue=epilogue)


def _median_reasons(site: Site) -> Iterator[str]:
    if len(site.input(0).shape) != 4:
        yield f"its input has shape {list(site.input(0).shape)}; [batch, height, width, channels] was expected"


@declare("RowMedian", versions=1, inputs=1, reasons=_median_reasons)
def row_median(site: Site, emit: Emitter) -> Tensor:
    """The median of each pixel and its left and right neighbours; at the border a pixel is its own neighbour."""
    return emit.node("row_median", [site.input(0)], site.input(0).shape)


@dataclass(frozen=True, kw_only=True)
class RowMedianParameters(ItemParameters, template="tflgpu_filters/row_median"):
    """Parameters of the template, which is in this package."""

    src: Storage


@PORTABLE.lowering("row_median")
def row_median_kernel(request: Request) -> Kernel:
    """One work-item computes four channels of a pixel."""
    parameters = RowMedianParameters(src=request.input(0))
    return item_kernel(request, parameters, [request.activation("src", 0)], cost=16)
