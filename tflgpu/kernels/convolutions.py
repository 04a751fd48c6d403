"""Parts that lowerings of convolutions share: arguments, facts for predicates, and transposed ones as phases.

With stride s, the output pixels whose row is s * y + phase for some y see every s-th row of the window, and no other:
row ky = (phase + top) % s + s * j of the window meets row y + (phase + top) // s - j of the image. So the phases share
out the taps, and no product is of a zero that stands for a pixel between those of the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.kernel import Argument
from tflgpu.kernels.packing import (
    RUNTIME_BLOCK,
    BlockInputs,
    Groups,
    block_inputs,
    inputs_of_blocks,
    mixed_groups,
    pack_dense,
    padded_bias,
)
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.image.convolution import Convolution, Depthwise, TransposeConvolution
from tflgpu.ops.image.window import Padding, Window


@dataclass(frozen=True)
class Phases:
    """A transposed convolution as kernels and templates read it that compute it phase by phase.

    counts: phases along each axis, as many as the stride is, but not more than there are rows or columns.
    batch, height, width: pixels of one phase, some of which may be past the last row or column of the output.
    leaves_image: whether a tap may be outside of the image, above or below, and left or right.
    """

    window: Window
    counts: tuple[int, int]
    batch: int
    height: int
    width: int
    leaves_image: tuple[bool, bool]

    @property
    def stride(self) -> tuple[int, int]:
        """Pixels of the output from one pixel of a phase to the next."""
        return self.window.stride

    @property
    def before(self) -> tuple[int, int]:
        """Rows above the output that windows reach, and columns left of it."""
        return self.window.padding.top, self.window.padding.left

    @property
    def count(self) -> int:
        """How many phases there are."""
        return prod(self.counts)

    @property
    def plane(self) -> int:
        """Pixels of a phase."""
        return self.height * self.width

    @property
    def window_of_phase(self) -> Window:
        """That of the phase which has the most taps. It reaches up and to the left, from a pixel that phases tell."""
        rows, columns = (tile_count(k, s) for k, s in zip(self.window.kernel, self.stride, strict=True))
        return Window((rows, columns), (1, 1), (-1, -1), Padding(0, 0, 0, 0))

    @property
    def is_guarded(self) -> bool:
        """Whether some taps of ``window_of_phase`` are outside of the image, or missing in some phase."""
        uneven = any(k % s for k, s in zip(self.window.kernel, self.stride, strict=True))
        return uneven or any(self.leaves_image)

    def geometry(self, channels: int) -> Geometry:
        """Return the geometry of one phase of an output.

        Args:
            channels: The output's.
        """
        return Geometry((self.batch, self.height, self.width, channels))

    def weights(self, weights: Array) -> list[Array]:
        """Return the weights of each phase, with zeros for taps that it does not have.

        Args:
            weights: [out, kh, kw, in].
        """
        found, shape = [], (len(weights), *self.window_of_phase.kernel, weights.shape[3])
        for phase in product(*map(range, self.counts)):
            first_y, first_x = ((p + b) % s for p, b, s in zip(phase, self.before, self.stride, strict=True))
            own = weights[:, first_y :: self.stride[0], first_x :: self.stride[1]]
            padded = np.zeros(shape, np.float32)
            padded[:, : own.shape[1], : own.shape[2]] = own
            found.append(padded)
        return found


def phases_of(request: Request) -> Phases | None:
    """Return the phases of a transposed convolution; None for an ordinary one."""
    return phases_between(request.node.attributes, request.input(0).geometry, request.output.geometry)


def phases_between(attributes: object, src: Geometry, dst: Geometry) -> Phases | None:
    """:func:`phases_of` by the attributes of a convolution.

    Args:
        attributes: Those of a node; only transposed convolutions have phases.
        src: The image.
        dst: The result.
    """
    if not isinstance(attributes, TransposeConvolution):
        return None
    window, rows, columns = attributes.window, dst.height, dst.width
    counts = min(window.stride[0], rows), min(window.stride[1], columns)
    height, width = tile_count(rows, window.stride[0]), tile_count(columns, window.stride[1])
    leaves_image = _leaves_image(window, 0, counts[0], height, src), _leaves_image(window, 1, counts[1], width, src)
    return Phases(window, counts, dst.batch, height, width, leaves_image)


def _leaves_image(window: Window, axis: int, phases: int, size: int, src: Geometry) -> bool:
    """Whether one of the ``size`` places of a phase along an axis has a tap outside of the image."""
    stride, before = window.stride[axis], window.padding[2 * axis]
    distances = [
        (phase + before - tap) // stride
        for phase in range(phases)
        for tap in range((phase + before) % stride, window.kernel[axis], stride)
    ]
    return bool(distances) and (min(distances) < 0 or max(distances) + size > (src.height, src.width)[axis])


UNROLLED_TAPS = 25  # of a depthwise window; the weights of larger ones would not stay in registers


def bias_argument(request: Request, size: int) -> Argument:
    """Return the bias as an argument; zeros where there is none.

    Args:
        request: A convolution.
        size: The number of floats; those past the bias are zero.
    """
    return Argument("bias", "float", None, padded_bias(request.optional_constant(2), size))


@dataclass(frozen=True)
class PackedWeights:
    """Weights as an argument, which input slices their blocks are for, and the groups that a block mixes, if any."""

    argument: Argument
    read: BlockInputs
    groups: Groups | None

    @property
    def blocks(self) -> int:
        """How many blocks of output channels there are."""
        return len(self.read.first)


def packed_weights(request: Request, block: int) -> PackedWeights:
    """Return the weights of a convolution node, transposed or not.

    Args:
        request: The convolution.
        block: Output channels of a block.
    """
    attributes, src, weights = request.node.attributes, request.input(0), request.value(1)
    assert isinstance(attributes, Convolution | TransposeConvolution)
    out = request.output.geometry.channels
    read = block_inputs(out, attributes.groups, block, src.geometry)
    mixed = mixed_groups(out, attributes.groups, block, read, src.geometry) if attributes.groups > 1 else None
    if weights is None:  # the pass pack_weights had them packed
        if request.shape(1).shape[1:] != (RUNTIME_BLOCK,):
            raise ValueError(f"the weights of {request.node.kind} are not packed")
        return PackedWeights(request.activation("weights", 1), read, mixed)
    inputs = read.slices * (src.geometry.channels if src.linear else LANES)
    if attributes.groups > 1:
        weights = inputs_of_blocks(weights, attributes.groups, block, read, inputs)
    return PackedWeights(request.weights("weights", pack_dense(weights, block, inputs)), read, mixed)


def is_vector_product(request: Request) -> bool:
    """Whether a convolution is a fully connected layer: every image is one pixel, and one pixel is all it reads."""
    attributes, src, dst = request.node.attributes, request.input(0), request.output
    if not isinstance(attributes, Convolution):
        return False
    pointwise = attributes.window.is_pointwise and attributes.groups == 1 and request.is_constant(1)
    return pointwise and src.geometry.plane == dst.geometry.plane == 1 and not src.linear


def convolution_macs(request: Request) -> int:
    """Multiplications of a convolution node, transposed or not; those with padding included."""
    attributes, src, dst = request.node.attributes, request.input(0), request.output
    assert isinstance(attributes, Convolution | TransposeConvolution)
    windows = dst.pixels if isinstance(attributes, Convolution) else src.pixels
    return windows * dst.channels * prod(attributes.window.kernel) * src.channels // attributes.groups


def depthwise_arguments(request: Request) -> tuple[Argument, Argument, Argument]:
    """Image, weights and bias; weights [1, kh, kw, channels] in PHWC4 are what the kernels want."""
    bias = bias_argument(request, request.output.slices * LANES)
    return request.activation("src", 0), request.operand("weights", 1), bias


def has_unrolled_taps(request: Request) -> bool:
    """Whether a depthwise convolution has one output a channel, and a window small enough to unroll."""
    return unrolls(request.node.attributes)


def unrolls(attributes: object) -> bool:
    """:func:`has_unrolled_taps` by the attributes of a node.

    Args:
        attributes: Those of a node of any kind.
    """
    if not isinstance(attributes, Depthwise):
        return False
    return attributes.multiplier == 1 and prod(attributes.window.kernel) <= UNROLLED_TAPS
