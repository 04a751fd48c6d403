"""PAD and PADV2. Paddings can be computed at run time if the file declares the shape of the result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.ops.declaration import ANY, Emitter, Site, declare, numbers, static
from tflgpu.ops.movement.gather import Digit, Gather, Lookup, Position
from tflgpu.ops.movement.shaping import AxisMap, Rearrange


def _padded_shape(site: Site) -> Shape | None:
    """The shape of the result; None if it is known only at run time."""
    if site.constant(1) is None:
        return site.output_shapes[0]
    margins = numbers(site, 1)
    return tuple(d + a + b for d, a, b in zip(site.input(0).shape, margins[::2], margins[1::2], strict=True))


def _reasons(site: Site) -> Iterator[str]:
    shape, paddings = site.input(0).shape, site.input(1).shape
    if paddings != (len(shape), 2):
        yield f"its paddings have shape {list(paddings)}; [{len(shape)}, 2] was expected"
        return
    padded = _padded_shape(site)
    if padded is None:
        yield "the shape of its result is computed at run time; the file has to declare it"
    elif len(padded) != len(shape) or any(p < d for p, d in zip(padded, shape, strict=True)):
        yield f"its result of shape {list(padded)} is not its input of shape {list(shape)} with paddings"
    elif site.constant(1) is not None and min(numbers(site, 1), default=0) < 0:
        yield f"its paddings {numbers(site, 1)} are not all positive or zero"


def _padded(site: Site, emit: Emitter, fill: float | int) -> Tensor:
    x, paddings, shape = site.input(0), site.input(1), _padded_shape(site)
    assert shape is not None
    if x.size == 0:
        return emit.constant(np.full(shape, fill, x.dtype))
    if site.constant(1) is not None:
        axes = tuple(AxisMap(i, -before) for i, before in enumerate(numbers(site, 1)[::2]))
        return emit.node("rearrange", [x], shape, Rearrange(axes, fill))
    positions = tuple(
        Position((Digit(i), Lookup(1, (AxisMap(None, i), AxisMap(None, 0)), None, step=-1))) for i in range(len(shape))
    )
    return emit.node("gather", [x, paddings], shape, Gather(positions, fill))


@declare("PAD", versions=6, inputs=2, integers=(1,), types=ANY, reasons=_reasons)
def pad(site: Site, emit: Emitter) -> Tensor:
    return _padded(site, emit, 0.0)


def _padv2_reasons(site: Site) -> Iterator[str]:
    yield from _reasons(site)
    yield from static(site, 2, "fill value")


@declare("PADV2", versions=6, inputs=3, integers=(1,), types=ANY, reasons=_padv2_reasons)
def padv2(site: Site, emit: Emitter) -> Tensor:
    value = site.constant(2)
    assert value is not None
    return _padded(site, emit, value.reshape(-1)[0].item() + 0)  # a truth value becomes a number
