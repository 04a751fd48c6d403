"""The layout of a convolution's weights, and weights that stay integers in device memory.

A block is the output channels that one work-item computes together. Constants are packed in numpy. Weights that are
computed at run time are packed by gather nodes; their result is a matrix with the channels of a block in each row,
which is the same bytes.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from math import gcd

import numpy as np

from tflgpu.graph.ir import Array, Tensor
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.kernel import Argument
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.declaration import Emitter
from tflgpu.ops.image.convolution import output_channel_axis
from tflgpu.ops.movement.indexing import Digit, Gather, Lookup, Position, follow
from tflgpu.ops.movement.shaping import AxisMap
from tflgpu.target import WIDEST, Target


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


ROWS_AT_ONCE = 1 << 20  # elements, about, that are divided by their scales together


@dataclass(frozen=True)
class StoredIntegers:
    """The weights of a layer as whole numbers.

    integers: [out, depth]. scales: [out, blocks]. block: how many inputs have the same scale. bits: of an integer.
    """

    integers: Array
    scales: Array
    block: int
    bits: int

    @property
    def together(self) -> int:
        """How many integers are in a byte: those of neighbouring inputs."""
        return 8 // self.bits

    def scale_block(self, inputs: int) -> int:
        """Return how many inputs have the same scale.

        Args:
            inputs: The padded depth.
        """
        return self.block if self.scales.shape[1] > 1 else inputs

    def weights(self, name: str, block: int, inputs: int) -> Argument:
        """Return the integers in the order of :func:`pack_dense`.

        A byte of two integers has that of the input with the even number in its lower half.

        Args:
            name: The argument's in C.
            block: Outputs of a block.
            inputs: The padded depth.
        """
        packed = pack_dense(self.integers[:, None, None, :], block, inputs, np.int8)
        if self.together == 2:
            packed = packed[..., ::2, :] & 15 | packed[..., 1::2, :] << 4
        return Argument(name, "char", None, packed)

    def scales_argument(self, outputs: int) -> Argument:
        """Return the scales [block of inputs][output].

        Args:
            outputs: The last of them have none, and 0.
        """
        padded = np.zeros((self.scales.shape[1], outputs), np.float32)
        padded[:, : len(self.scales)] = self.scales.T
        return Argument("scales", "float", None, padded)


def packed_block(target: Target) -> int:
    """How many outputs have their weights side by side in the layout that kernels of one row read."""
    return WIDEST if target.family == "cpu" else LANES


def stored_integers(request: Request) -> StoredIntegers | None:
    """Return the weights of a fully connected layer, or of a convolution that is one, if they are whole multiples of
    scales.

    None if they need more than 8 bits, or if blocks of the same scale are no whole slices.
    """
    if output_channel_axis(request.node) != 0:
        return None
    return integers_of(request.graph[request.node.inputs[1]], request.output.geometry.channels)


def integers_of(weights: Tensor, out: int) -> StoredIntegers | None:
    """Return a constant, as :func:`stored_integers`; None if it is none of integers.

    Args:
        weights: The constant.
        out: Its rows.
    """
    elements, scale = weights.data if weights.scale is not None else None, weights.scale
    if elements is None or scale is None:
        return None
    data = elements.reshape(out, -1)
    if scale.size == 1 or (scale.size == out and scale.shape[0] == out):
        scales, block = np.broadcast_to(scale.reshape(-1, 1), (out, 1)), data.shape[1]
    elif scale.shape == (out, scale.size // out) and data.shape[1] % scale.shape[1] == 0:
        scales, block = _blocks(scale, data.shape[1])
    elif scale.size == data.size:
        scales, block = _blocks(scale.reshape(data.shape), data.shape[1])
    else:
        return None
    if not np.isfinite(scales).all() or (scales.shape[1] > 1 and block % LANES):
        return None
    integers = np.empty(data.shape, np.int8)
    least = most = 0
    for first in range(0, out, rows := max(1, ROWS_AT_ONCE // data.shape[1])):
        own = scales[first : first + rows, :, None]
        part = data[first : first + rows].reshape(len(own), -1, block)
        whole = np.rint(np.divide(part, own, out=np.zeros(part.shape), where=own != 0))
        if not np.isfinite(whole).all():
            return None
        least, most = min(least, int(whole.min())), max(most, int(whole.max()))
        if least < -128 or most > 127:
            return None
        integers[first : first + rows] = whole.reshape(len(own), -1)
    return StoredIntegers(integers, scales.astype(np.float32), block, 4 if least >= -8 and most < 8 else 8)


def _blocks(scale: Array, depth: int) -> tuple[Array, int]:
    """Return the scales of the longest blocks of inputs in which every output has a single one, and how long these are.

    scale: of blocks or elements. depth: inputs.
    """
    size = depth // scale.shape[1]
    changes = size * (np.flatnonzero((scale[:, 1:] != scale[:, :-1]).any(axis=0)) + 1)
    block = gcd(depth, *changes.tolist())
    return scale[:, :: block // size], block
