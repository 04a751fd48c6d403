"""Weights and biases of convolutions as arguments of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tflgpu.graph.ir import Array
from tflgpu.graph.layout import LANES
from tflgpu.kernels.kernel import Argument
from tflgpu.kernels.packing import RUNTIME_BLOCK, BlockInputs, block_inputs, pack_dense, pack_grouped, padded_bias
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import Convolution


def bias_of(request: Request, padded: int) -> Array:
    return padded_bias(request.optional_constant(2), padded)


@dataclass(frozen=True)
class PackedWeights:
    """Weights as an argument, and which input slices their blocks are for."""

    argument: Argument
    read: BlockInputs

    @property
    def blocks(self) -> int:
        return len(self.read.first)


def packed_weights(request: Request, block: int) -> PackedWeights:
    """The weights of a convolution node for blocks of ``block`` output channels."""
    attributes, src, weights = request.node.attributes, request.input(0), request.value(1)
    assert isinstance(attributes, Convolution)
    read = block_inputs(request.output.geometry.channels, attributes.groups, block, src.geometry)
    if weights is None:
        return PackedWeights(runtime_weights(request), read)
    inputs = read.slices * (src.geometry.channels if src.linear else LANES)
    if attributes.groups == 1:
        packed = pack_dense(weights, block, inputs)
    else:
        packed = pack_grouped(weights, attributes.groups, block, read, inputs)
    return PackedWeights(request.weights("weights", packed), read)


def runtime_weights(request: Request) -> Argument:
    """Weights that ``passes/weights.py`` had packed."""
    assert request.shape(1).shape[1:] == (RUNTIME_BLOCK,), f"the weights of {request.node.kind} are not packed"
    return request.activation("weights", 1)


def is_vector_product(request: Request) -> bool:
    """Whether a convolution is a fully connected layer: every image is one pixel, and one pixel is all it reads."""
    attributes, src, dst = request.node.attributes, request.input(0), request.output
    assert isinstance(attributes, Convolution)
    pointwise = attributes.window.is_pointwise and attributes.groups == 1 and request.value(1) is not None
    return pointwise and src.geometry.plane == dst.geometry.plane == 1 and not src.linear


def convolution_macs(request: Request) -> int:
    """Multiplications of a convolution node, those with padding included."""
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, Convolution)
    return g.pixels * g.channels * prod(attributes.window.kernel) * request.input(0).channels // attributes.groups


def depthwise_arguments(request: Request) -> tuple[Argument, Argument, Argument]:
    """Image, weights and bias; weights [1, kh, kw, channels] in PHWC4 are what the kernels want."""
    g = request.output.geometry
    bias = bias_of(request, g.slices * LANES)
    return request.activation("src", 0), request.operand("weights", 1), Argument("bias", "float", None, bias)
