"""The layout of a convolution's weights: [block][kh][kw][slice][lane][output channel of the block].

A block is the output channels that one work-item computes together. Constants are packed in numpy. Weights that are
computed at run time are packed by gather nodes; their result is a matrix with the channels of a block in each row,
which is the same bytes.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Array, Tensor
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.declaration import Emitter
from tflgpu.ops.movement.indexing import Digit, Gather, Lookup, Position, follow
from tflgpu.ops.movement.shaping import AxisMap
from tflgpu.target import WIDEST


def padded_bias(bias: Array | None, size: int) -> Array:
    """Return a bias with zeros after it.

    Args:
        bias: None for zeros.
        size: Elements of the result.
    """
    values = np.zeros(size, np.float32)
    if bias is not None:
        values[: bias.size] = bias.reshape(-1)
    return values


LARGE = 1 << 20  # bytes


def reordered(view: Array) -> Array:
    """Return a contiguous copy of constants.

    A large one has a mapping of its own: when it is freed, the system has its memory back at once, and not a heap.

    Args:
        view: The constants in their new order.
    """
    if view.nbytes < LARGE:
        return np.ascontiguousarray(view)
    copy: Array = np.frombuffer(mmap.mmap(-1, view.nbytes), view.dtype).reshape(view.shape)
    copy[...] = view
    return copy


RUNTIME_BLOCK = WIDEST  # output channels of a block of weights packed at run time; kernels of all architectures take it


@dataclass(frozen=True)
class BlockInputs:
    """The input slices that blocks of output channels read: ``slices`` of them each, block b from ``first[b]`` on."""

    first: tuple[int, ...]
    slices: int

    @property
    def expression(self) -> str:
        """A C expression of the tile's block ``ob``: the first input slice it reads."""
        step = self.first[1] - self.first[0] if len(self.first) > 1 else 0
        if self.first == tuple(step * b for b in range(len(self.first))):
            return f"ob * {step}" if step else "0"
        chain = "".join(f"ob == {b} ? {f} : " for b, f in enumerate(self.first[:-1]))
        return f"({chain}{self.first[-1]})"


def block_inputs(out: int, groups: int, block: int, source: Geometry) -> BlockInputs:
    """Return the input channels that blocks of output channels read.

    Args:
        out: Output channels.
        groups: Of the convolution.
        block: Output channels of a block.
        source: The image.
    """
    blocks = tile_count(out, block)
    if groups == 1:
        return BlockInputs((0,) * blocks, source.slices)
    depth, per_group = source.channels // groups, out // groups
    spans = []
    for b in range(blocks):
        low, high = b * block // per_group, (min((b + 1) * block, out) - 1) // per_group
        spans.append((low * depth // LANES, -(-(high + 1) * depth // LANES)))
    count = max(end - begin for begin, end in spans)
    return BlockInputs(tuple(min(begin, source.slices - count) for begin, _ in spans), count)


@dataclass(frozen=True)
class Groups:
    """A grouped convolution: channels of the input, and of the output, that form a group."""

    inputs: int
    outputs: int


def mixed_groups(out: int, groups: int, block: int, read: BlockInputs, source: Geometry) -> Groups | None:
    """Return the groups, if blocks read input channels of groups that are not theirs.

    These have no weights, and a kernel must not multiply them: zero times infinity is NaN.

    Args:
        out: Output channels.
        groups: Of the convolution.
        block: Output channels of a block.
        read: The input channels that blocks read.
        source: The image.

    Returns:
        None if no block does so.
    """
    mixed = Groups(source.channels // groups, out // groups)
    for b, first in enumerate(read.first):
        inputs = np.arange(first * LANES, min((first + read.slices) * LANES, source.channels)) // mixed.inputs
        outputs = np.arange(b * block, min((b + 1) * block, out)) // mixed.outputs
        if len({*inputs, *outputs}) > 1:
            return mixed
    return None


def _shifts(read: BlockInputs, out: int, groups: int, depth: int, block: int) -> Array:
    """By output channel: the first channel that its block reads, counted from the first channel of its own group."""
    channel = np.arange(out)
    return np.array(read.first)[channel // block] * LANES - channel // (out // groups) * depth


def pack_dense(weights: Array, block: int, inputs: int, dtype: type[np.generic] = np.float32) -> Array:
    """Return weights in blocks: [block][kh][kw][in][outputs of a block].

    Args:
        weights: [out, kh, kw, in].
        block: Output channels of a block; those past the last one are zero.
        inputs: Input channels of the result; those that the weights do not have are zero.
        dtype: The result's.
    """
    out, kh, kw, depth = weights.shape
    blocks = tile_count(out, block)
    packed = np.zeros((blocks * block, kh, kw, inputs), dtype)
    packed[:out, ..., :depth] = weights
    return reordered(packed.reshape(blocks, block, kh, kw, inputs).transpose(0, 2, 3, 4, 1))


def inputs_of_blocks(weights: Array, groups: int, block: int, read: BlockInputs, inputs: int) -> Array:
    """Return weights with all inputs of a block, of which those of other groups are zero.

    Args:
        weights: [out, kh, kw, in / groups].
        groups: Of the convolution.
        block: Output channels of a block.
        read: The input channels that blocks read.
        inputs: Input channels of a block.

    Returns:
        [out, kh, kw, inputs].
    """
    out, kh, kw, depth = weights.shape
    aligned = np.zeros((out, kh, kw, inputs), weights.dtype)
    for o, shift in enumerate(_shifts(read, out, groups, depth, block)):
        aligned[o, :, :, -shift : depth - shift] = weights[o]
    return aligned


def packing_nodes(emit: Emitter, weights: Tensor, groups: int, source: Geometry) -> Tensor:
    """Return nodes that pack weights that a run computes, in blocks of ``RUNTIME_BLOCK``.

    Args:
        emit: Gets the nodes.
        weights: [out, kh, kw, in / groups].
        groups: Of the convolution.
        source: The image.
    """
    (out, kh, kw, depth), precise = weights.shape, weights.precise
    read = block_inputs(out, groups, RUNTIME_BLOCK, source)
    inputs, blocks = read.slices * LANES, len(read.first)
    if groups > 1:  # each output channel gets all the inputs of its block
        shifts = emit.constant(_shifts(read, out, groups, depth, RUNTIME_BLOCK).astype(np.int32))
        channel = Position((Digit(3), Lookup(1, (AxisMap(0),), None)))
        align = Gather((follow(0), follow(1), follow(2), channel), fill=0.0)
        weights = emit.node("gather", [weights, shifts], (out, kh, kw, inputs), align, precise=precise)
    positions = (
        Position((Digit(0, step=RUNTIME_BLOCK, divisor=kh * kw * inputs), Digit(1))),
        Position((Digit(0, divisor=kw * inputs, modulus=kh),)),
        Position((Digit(0, divisor=inputs, modulus=kw),)),
        Position((Digit(0, modulus=inputs),)),
    )
    shape = (blocks * kh * kw * inputs, RUNTIME_BLOCK)
    return emit.node("gather", [weights], shape, Gather(positions, fill=0.0), precise=precise)
