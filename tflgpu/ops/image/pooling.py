"""Average, maximum and L2 pooling. Padding counts neither in an average's divisor nor as a maximum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tflgpu.graph.ir import Tensor
from tflgpu.ops.arithmetic.reduction import Reduce
from tflgpu.ops.declaration import Emitter, Site, declare
from tflgpu.ops.image.window import Window, window_of, window_reasons

# l2 is the square root of the average of squares.
Function = Literal["average", "maximum", "l2"]


@dataclass(frozen=True)
class Pool:
    """The maximum or the mean of the windows of an image."""

    function: Function
    window: Window


def _kernel(site: Site) -> tuple[int, int]:
    return site.options.get("filter_height", 0), site.options.get("filter_width", 0)


def _reasons(site: Site) -> Iterator[str]:
    yield from window_reasons(site, _kernel(site), site.input(0).shape)


FUNCTIONS: dict[str, Function] = {"AVERAGE_POOL_2D": "average", "MAX_POOL_2D": "maximum", "L2_POOL_2D": "l2"}


@declare("AVERAGE_POOL_2D", versions=3, inputs=1, reasons=_reasons)
@declare("MAX_POOL_2D", versions=3, inputs=1, reasons=_reasons)
@declare("L2_POOL_2D", versions=1, inputs=1, reasons=_reasons)
def pool(site: Site, emit: Emitter) -> Tensor:
    """Return the maximum or the mean of each window."""
    image, function = site.input(0), FUNCTIONS[site.code]
    window = window_of(site, _kernel(site), image.shape)
    shape = (image.shape[0], *window.output(*image.shape[1:3]), image.shape[3])
    if function == "average" and window.kernel == image.shape[1:3] and not any(window.padding):
        return emit.node("reduce", [image], shape, Reduce("mean", (1, 2)), emit.activation(site))
    return emit.node("pool", [image], shape, Pool(function, window), emit.activation(site))
