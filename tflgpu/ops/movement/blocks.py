"""PAD and PADV2, and operators that exchange blocks of pixels for channels or images."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.ops.declaration import ANY, Emitter, Site, declare, numbers, static
from tflgpu.ops.movement.indexing import Digit, Gather, Position, follow
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


def _depth_reasons(site: Site) -> Iterator[str]:
    shape, block = site.input(0).shape, site.options.get("block_size", 0)
    if len(shape) != 4 or block < 1 or shape[3] % (block * block):
        yield f"its input of shape {list(shape)} has no four axes with channels for blocks of {block} by {block}"


@declare("DEPTH_TO_SPACE", versions=2, inputs=1, types=ANY, reasons=_depth_reasons)
def depth_to_space(site: Site, emit: Emitter) -> Tensor:
    """Channel ``(i * block + j) * C + c`` becomes channel c of pixel (i, j) of a block."""
    x, block = site.input(0), site.options["block_size"]
    batch, height, width, depth = x.shape
    channels = depth // block**2
    row = Digit(1, step=block * channels, modulus=block)
    column = Digit(2, step=channels, modulus=block)
    positions = (
        follow(0),
        Position((Digit(1, divisor=block),)),
        Position((Digit(2, divisor=block),)),
        Position((Digit(3), row, column)),
    )
    return emit.node("gather", [x], (batch, height * block, width * block, channels), Gather(positions))


def _space_reasons(site: Site) -> Iterator[str]:
    shape, block = site.input(0).shape, site.options.get("block_size", 0)
    if len(shape) != 4 or block < 1 or shape[1] % block or shape[2] % block:
        yield f"its input of shape {list(shape)} has no height and width to cut into blocks of {block} by {block}"


@declare("SPACE_TO_DEPTH", versions=2, inputs=1, types=ANY, reasons=_space_reasons)
def space_to_depth(site: Site, emit: Emitter) -> Tensor:
    """Return the inverse of :func:`depth_to_space`."""
    x, block = site.input(0), site.options["block_size"]
    batch, height, width, channels = x.shape
    positions = (
        follow(0),
        Position((Digit(1, step=block), Digit(3, divisor=block * channels))),
        Position((Digit(2, step=block), Digit(3, divisor=channels, modulus=block))),
        Position((Digit(3, modulus=channels),)),
    )
    return emit.node("gather", [x], (batch, height // block, width // block, block**2 * channels), Gather(positions))


def _blocks(site: Site) -> tuple[list[int], list[tuple[int, int]]]:
    """Block size and margins (paddings or crops) of each spatial axis: these are the axes after the batch."""
    margins = numbers(site, 2)
    return numbers(site, 1), list(zip(margins[::2], margins[1::2], strict=True))


def _block_reasons(site: Site, margins: str) -> Iterator[str]:
    yield from static(site, 1, "block shape")
    yield from static(site, 2, margins)
    block, pairs, rank = site.constant(1), site.constant(2), len(site.input(0).shape)
    if block is None or pairs is None:
        return
    if block.ndim != 1 or block.size >= rank or block.min() < 1 or pairs.shape != (block.size, 2) or pairs.min() < 0:
        yield (
            f"its block {block.tolist()} and {margins} {pairs.tolist()} do not fit "
            f"an input of shape {list(site.input(0).shape)}"
        )


def _padded_sizes(site: Site) -> list[int]:
    """Return the spatial sizes with paddings."""
    _, paddings = _blocks(site)
    return [d + sum(pair) for d, pair in zip(site.input(0).shape[1:], paddings, strict=False)]


def _to_batch_reasons(site: Site) -> Iterator[str]:
    found = list(_block_reasons(site, "paddings"))
    yield from found
    if not found and any(size % b for size, b in zip(_padded_sizes(site), _blocks(site)[0], strict=True)):
        yield f"its padded sizes {_padded_sizes(site)} are not multiples of its block {_blocks(site)[0]}"


@declare("SPACE_TO_BATCH_ND", versions=4, inputs=3, integers=(1, 2), types=ANY, reasons=_to_batch_reasons)
def space_to_batch(site: Site, emit: Emitter) -> Tensor:
    """Image ``i * B + b`` of the result has the pixels at place i of all blocks of image b."""
    x, (block, paddings) = site.input(0), _blocks(site)
    batch, spatial = x.shape[0], len(block)
    positions = [Position((Digit(0, modulus=batch),))]
    for i, (size, (before, _)) in enumerate(zip(block, paddings, strict=True)):
        place = Digit(0, divisor=batch * prod(block[i + 1 :]), modulus=size)
        positions.append(Position((Digit(i + 1, step=size), place), start=-before))
    positions += map(follow, range(spatial + 1, len(x.shape)))
    sizes = [size // b for size, b in zip(_padded_sizes(site), block, strict=True)]
    shape = (batch * prod(block), *sizes, *x.shape[spatial + 1 :])
    return emit.node("gather", [x], shape, Gather(tuple(positions), fill=0))


def _spread(site: Site) -> Shape:
    """Return the shape that BATCH_TO_SPACE_ND gives."""
    x, (block, crops) = site.input(0), _blocks(site)
    sizes = (d * b - sum(crop) for d, b, crop in zip(x.shape[1:], block, crops, strict=False))
    return (x.shape[0] // prod(block), *sizes, *x.shape[len(block) + 1 :])


def _to_space_reasons(site: Site) -> Iterator[str]:
    found = list(_block_reasons(site, "crops"))
    yield from found
    if not found and (site.input(0).shape[0] % prod(_blocks(site)[0]) or min(_spread(site)) < 1):
        block, crops = _blocks(site)
        yield f"its block {block} and crops {crops} leave nothing of an input of shape {list(site.input(0).shape)}"


@declare("BATCH_TO_SPACE_ND", versions=4, inputs=3, integers=(1, 2), types=ANY, reasons=_to_space_reasons)
def batch_to_space(site: Site, emit: Emitter) -> Tensor:
    """Return the inverse of :func:`space_to_batch`, with crops in place of paddings."""
    x, shape, (block, crops) = site.input(0), _spread(site), _blocks(site)
    spatial = len(block)
    images, pixels = [Digit(0)], list[Position]()
    for i, (size, (before, _)) in enumerate(zip(block, crops, strict=True)):
        images.append(Digit(i + 1, step=shape[0] * prod(block[i + 1 :]), shift=before, modulus=size))
        pixels.append(Position((Digit(i + 1, shift=before, divisor=size),)))
    rest = map(follow, range(spatial + 1, len(x.shape)))
    return emit.node("gather", [x], shape, Gather((Position(tuple(images)), *pixels, *rest)))
