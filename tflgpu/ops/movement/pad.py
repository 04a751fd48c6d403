"""PAD and PADV2."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.ops.declaration import ANY, Emitter, Site, declare, numbers, static
from tflgpu.ops.movement.shaping import AxisMap, Rearrange
from tflgpu.ops.sized import Amount, Number, Refused, Results, SizedOperation, sized_shape


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


def _sized_pad(op: SizedOperation) -> Results | None:
    x, own = op.input(0), op.open(0)
    given = op.site.constant(1)
    if given is not None and not own:
        return None
    margins = op.amounts(1)
    value = op.site.constant(2) if op.site.code == "PADV2" else np.zeros(1, x.dtype)
    if value is None or len(margins) != 2 * len(x.shape):
        raise Refused("its fill value is computed, or its paddings do not fit its input")
    fill = value.reshape(-1)[0].item() + 0
    befores = [amount.known for amount in margins[::2]]
    sizes = [op.sizes.size(own[axis]) if axis in own else Amount(extent) for axis, extent in enumerate(x.shape)]
    moved = [size.plus(before) for size, before in zip(sizes, margins[::2], strict=True)]
    totals = [end.plus(after) for end, after in zip(moved, margins[1::2], strict=True) if end is not None]
    maps = [AxisMap(axis, -before) for axis, before in enumerate(befores) if before is not None and before >= 0]
    found = [total for total in totals if total is not None]
    if len(maps) != len(x.shape) or len(found) != len(x.shape):
        raise Refused("how far its elements move is computed")
    shape, known = sized_shape(op, found)
    ends: dict[int, Number] = {}
    for axis, end in enumerate(moved):
        if axis in own and found[axis] == sizes[axis]:
            known[axis] = own[axis]
        elif axis in own and end is not None:
            ends[axis] = op.number(end, x.shape[axis] - maps[axis].start)
    result = op.emit.node("rearrange", [x], tuple(shape), Rearrange(tuple(maps), fill))
    op.sizes.open[result.id] = ends
    result = op.sizes.masked(op.emit, result, ends, fill)
    return op.noted(result, known)


@declare("PAD", versions=6, inputs=2, integers=(1,), types=ANY, reasons=_reasons, sized=_sized_pad)
def pad(site: Site, emit: Emitter) -> Tensor:
    """Return the input with zeros around it."""
    return _padded(site, emit, 0.0)


def _padv2_reasons(site: Site) -> Iterator[str]:
    yield from _reasons(site)
    yield from static(site, 2, "fill value")


@declare("PADV2", versions=6, inputs=3, integers=(1,), types=ANY, reasons=_padv2_reasons, sized=_sized_pad)
def padv2(site: Site, emit: Emitter) -> Tensor:
    """Return the input with a constant value around it."""
    return _padded(site, emit, site.known(2).reshape(-1)[0].item() + 0)  # a boolean becomes a number
