"""L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION: both divide by a norm of channels, computed in float."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Input, Tensor, Value
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.declaration import Emitter, Site, declare

# The least divisor in TFLite: channels may all be zero.
LEAST_NORM = 1e-6


@dataclass(frozen=True)
class LocalResponse:
    """``x * (bias + alpha * sum of squares of channels c - radius to c + radius) ** -beta``."""

    radius: int
    bias: float
    alpha: float
    beta: float


def _rank_reasons(site: Site) -> Iterator[str]:
    if not site.input(0).shape:
        yield "its input has no axes"


@declare("L2_NORMALIZATION", versions=2, inputs=1, reasons=_rank_reasons)
def l2_normalization(site: Site, emit: Emitter) -> Tensor:
    """One node computes the norm over the last axis, so that no square is stored in half precision.

    ``maximum`` gives its second operand if either is NaN: a norm that is none stays none.
    """
    x, least = site.input(0), emit.constant(np.array(LEAST_NORM, np.float32))
    epilogue = (EpilogueOp("sqrt", (Value(0),)), EpilogueOp("maximum", (Input(1), Value(1))))
    axes = (len(x.shape) - 1,)
    norm = emit.node("reduce", [x, least], (*x.shape[:-1], 1), Reduce("sum_of_squares", axes), epilogue)
    quotient = EpilogueOp("div", (Value(0), Input(1)))
    return emit.node("map", [x, norm], x.shape, epilogue=(quotient, *emit.activation(site, after=1)))


@declare("LOCAL_RESPONSE_NORMALIZATION", versions=1, inputs=1, reasons=_rank_reasons)
def local_response_normalization(site: Site, emit: Emitter) -> Tensor:
    """Each element divided by a power of the squares of its neighbouring channels."""
    x, option = site.input(0), site.options.get
    radius = min(int(option("radius", 0)), x.shape[-1])  # a larger one sees no more channels
    bias, alpha, beta = (float(option(name, 0.0)) for name in ("bias", "alpha", "beta"))
    attributes = LocalResponse(radius, bias, alpha, beta)
    return emit.node("local_response", [x], x.shape, attributes)
