"""PAD and PADV2."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.ops.declaration import ANY, Emitter, Site, declare, numbers, static
from tflgpu.ops.movement.shaping import AxisMap, Rearrange


def _reasons(site: Site) -> Iterator[str]:
    shape, paddings = site.input(0).shape, site.input(1).shape
    if paddings != (len(shape), 2):
        yield f"its paddings have shape {list(paddings)}; [{len(shape)}, 2] was expected"
        return
    yield from static(site, 1, "paddings")
    if site.constant(1) is not None and min(numbers(site, 1), default=0) < 0:
        yield f"its paddings {numbers(site, 1)} are not all positive or zero"


def _padded(site: Site, emit: Emitter, fill: float | int) -> Tensor:
    x, margins = site.input(0), numbers(site, 1)
    shape = tuple(d + a + b for d, a, b in zip(x.shape, margins[::2], margins[1::2], strict=True))
    if x.size == 0:
        return emit.constant(np.full(shape, fill, x.dtype))
    axes = tuple(AxisMap(i, -before) for i, before in enumerate(margins[::2]))
    return emit.node("rearrange", [x], shape, Rearrange(axes, fill))


@declare("PAD", versions=6, inputs=2, integers=(1,), types=ANY, reasons=_reasons)
def pad(site: Site, emit: Emitter) -> Tensor:
    """Return the input with zeros around it."""
    return _padded(site, emit, 0.0)


def _padv2_reasons(site: Site) -> Iterator[str]:
    yield from _reasons(site)
    yield from static(site, 2, "fill value")


@declare("PADV2", versions=6, inputs=3, integers=(1,), types=ANY, reasons=_padv2_reasons)
def padv2(site: Site, emit: Emitter) -> Tensor:
    """Return the input with a constant value around it."""
    return _padded(site, emit, site.known(2).reshape(-1)[0].item() + 0)  # a truth value becomes a number
