"""Operators that exchange blocks of pixels for channels or images."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.ops.declaration import ANY, Emitter, Site, declare, numbers, static
from tflgpu.ops.movement.gather import Digit, Gather, Position, follow


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


def _padded(site: Site) -> list[int]:
    """Return the spatial sizes with paddings."""
    _, paddings = _blocks(site)
    return [d + sum(pair) for d, pair in zip(site.input(0).shape[1:], paddings, strict=False)]


def _to_batch_reasons(site: Site) -> Iterator[str]:
    found = list(_block_reasons(site, "paddings"))
    yield from found
    if not found and any(size % b for size, b in zip(_padded(site), _blocks(site)[0], strict=True)):
        yield f"its padded sizes {_padded(site)} are not multiples of its block {_blocks(site)[0]}"


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
    sizes = [size // b for size, b in zip(_padded(site), block, strict=True)]
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
