"""Parts that lowerings of convolutions share: their arguments, and facts that predicates ask for."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tflgpu.graph.layout import LANES
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
from tflgpu.ops.image.convolution import Convolution, Depthwise, TransposeConvolution

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
