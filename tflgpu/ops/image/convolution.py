"""CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV and FULLY_CONNECTED."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tflgpu.graph.ir import EpilogueOp, Input, Node, Tensor, Value
from tflgpu.graph.layout import Shape
from tflgpu.ops.arithmetic.matmul import MatMul
from tflgpu.ops.declaration import Emitter, Site, declare, numbers, static
from tflgpu.ops.image.window import Window, reach_reasons, window_of, window_reasons
from tflgpu.ops.movement.shaping import reshape_node


@dataclass(frozen=True)
class Convolution:
    """Inputs: image NHWC, weights [out, kh, kw, in / groups], optionally bias [out].

    A node of its own packs weights that are not constant (``tflgpu/passes/pack_weights.py``).
    """

    window: Window
    groups: int = 1


@dataclass(frozen=True)
class Depthwise:
    """Inputs: image NHWC, weights [1, kh, kw, channels * multiplier], optionally bias [channels * multiplier].

    Output channel o reads input channel o // multiplier.
    """

    window: Window
    multiplier: int


@dataclass(frozen=True)
class TransposeConvolution:
    """Inputs: image NHWC, weights [out, kh, kw, in], optionally bias [out].

    ``window`` is that of the convolution from the output back to the input. There is one group.
    """

    window: Window
    groups: ClassVar[int] = 1


def output_channel_axis(node: Node) -> int | None:
    """Return the axis of the weights along which the output channels of a convolution lie; None for all other nodes."""
    match node.attributes:
        case Convolution() | TransposeConvolution():
            return 0
        case Depthwise():
            return 3
    return 0 if node.kind == "fully_connected" else None


def bias_reasons(site: Site, index: int, channels: int) -> Iterator[str]:
    """Yield obstacles in the bias that :func:`convolution_node` takes.

    Args:
        site: The operator.
        index: The number of the input that is the bias; it may be absent.
        channels: Output channels.
    """
    bias = site.optional(index)
    if bias is not None and bias.size != channels:
        yield f"its bias has {bias.size} values for {channels} output channels"


def convolution_node(
    site: Site,
    emit: Emitter,
    kind: str,
    operands: tuple[Tensor, Tensor, Tensor | None],
    shape: Shape,
    attributes: Convolution | Depthwise | TransposeConvolution | None,
) -> Tensor:
    """Return a convolution, whose first epilogue op adds a bias that is not constant.

    Args:
        site: The operator.
        emit: Gets the node.
        kind: The node's.
        operands: Image, weights and bias; None for no bias.
        shape: The result's.
        attributes: Those of the kind.
    """
    bias = operands[2]
    if bias is None or bias.is_constant:
        return emit.node(kind, operands, shape, attributes, emit.activation(site))
    values = reshape_node(emit, bias, shape[-1:])
    epilogue = (EpilogueOp("add", (Value(0), Input(2))), *emit.activation(site, after=1))
    return emit.node(kind, [*operands[:2], values], shape, attributes, epilogue)


def _conv_reasons(site: Site) -> Iterator[str]:
    image, weights = site.input(0), site.input(1)
    if len(weights.shape) != 4:
        yield f"its weights have shape {list(weights.shape)}; [out, height, width, in] was expected"
        return
    yield from window_reasons(site, weights.shape[1:3], image.shape)
    out, _, _, depth = weights.shape
    channels = image.shape[-1] if image.shape else 1
    if depth == 0 or out == 0 or channels % depth or out % (channels // depth or 1):
        yield f"its weights {list(weights.shape)} do not fit {channels} input channels"
    yield from bias_reasons(site, 2, out)


@declare("CONV_2D", versions=8, inputs=(2, 3), reasons=_conv_reasons)
def conv_2d(site: Site, emit: Emitter) -> Tensor:
    """Return a dense or grouped convolution."""
    image, weights, bias = site.input(0), site.input(1), site.optional(2)
    out, kh, kw, depth = weights.shape
    window = window_of(site, (kh, kw), image.shape)
    shape = (image.shape[0], *window.output(*image.shape[1:3]), out)
    attributes = Convolution(window, image.shape[3] // depth)
    return convolution_node(site, emit, "convolution", (image, weights, bias), shape, attributes)


def _depthwise_reasons(site: Site) -> Iterator[str]:
    image, weights = site.input(0), site.input(1)
    if len(weights.shape) != 4 or weights.shape[0] != 1:
        yield f"its weights have shape {list(weights.shape)}; [1, height, width, channels] was expected"
        return
    yield from window_reasons(site, weights.shape[1:3], image.shape)
    channels = image.shape[-1] if image.shape else 1
    if channels == 0 or weights.shape[3] == 0 or weights.shape[3] % channels:
        yield f"its {weights.shape[3]} output channels are no multiple of {channels} input channels"
    yield from bias_reasons(site, 2, weights.shape[3])


@declare("DEPTHWISE_CONV_2D", versions=7, inputs=(2, 3), reasons=_depthwise_reasons)
def depthwise_conv_2d(site: Site, emit: Emitter) -> Tensor:
    """Return a depthwise convolution."""
    image, weights, bias = site.input(0), site.input(1), site.optional(2)
    _, kh, kw, out = weights.shape
    window = window_of(site, (kh, kw), image.shape)
    shape = (image.shape[0], *window.output(*image.shape[1:3]), out)
    # The shapes give the multiplier: the option depth_multiplier is absent in some files.
    attributes = Depthwise(window, out // image.shape[3])
    return convolution_node(site, emit, "depthwise", (image, weights, bias), shape, attributes)


def _transpose_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 0, "output shape")
    if site.constant(0) is None:
        return
    weights, image, shape = site.input(1), site.input(2), tuple(numbers(site, 0))
    if len(shape) != 4 or min(shape[1:]) < 1:
        yield f"its output shape {list(shape)} is not [batch, height, width, channels]"
        return
    if len(weights.shape) != 4 or len(image.shape) != 4 or weights.shape[3] != image.shape[3]:
        yield f"its weights {list(weights.shape)} do not fit its input {list(image.shape)}"
        return
    if min(site.options.get("stride_h", 0), site.options.get("stride_w", 0)) < 1:
        yield "its strides must be positive"
        return
    if shape[3] != weights.shape[0]:
        yield f"its output shape {list(shape)} does not fit weights {list(weights.shape)}"
    elif window_of(site, weights.shape[1:3], shape).output(*shape[1:3]) != image.shape[1:3]:
        yield f"its output shape {list(shape)} does not lead back to the input's {list(image.shape)}"
    yield from reach_reasons(window_of(site, weights.shape[1:3], shape), shape)
    yield from bias_reasons(site, 3, weights.shape[0])


@declare("TRANSPOSE_CONV", versions=5, inputs=(3, 4), integers=(0,), reasons=_transpose_reasons)
def transpose_conv(site: Site, emit: Emitter) -> Tensor:
    """Return a transposed convolution."""
    weights, image, bias = site.input(1), site.input(2), site.optional(3)
    _, kh, kw, _ = weights.shape
    # A file's constant shape has the batch that was exported; the image may have another.
    shape = (image.shape[0], *numbers(site, 0)[1:])
    attributes = TransposeConvolution(window_of(site, (kh, kw), shape))
    return convolution_node(site, emit, "transpose_convolution", (image, weights, bias), shape, attributes)


def _fully_connected_reasons(site: Site) -> Iterator[str]:
    x, weights = site.input(0), site.input(1)
    if site.options.get("weights_format", 0) != 0:
        yield "its weights are stored shuffled; only the default format is supported"
    if len(weights.shape) != 2 or 0 in weights.shape or x.size % weights.shape[-1]:
        yield f"its weights {list(weights.shape)} do not fit its input {list(x.shape)}"
        return
    if site.options.get("keep_num_dims") and x.shape[-1:] != weights.shape[1:]:
        yield f"it keeps dimensions, but its input {list(x.shape)} does not end with {weights.shape[1]} channels"
    yield from bias_reasons(site, 2, weights.shape[0])


@declare("FULLY_CONNECTED", versions=13, inputs=(2, 3), reasons=_fully_connected_reasons)
def fully_connected(site: Site, emit: Emitter) -> Tensor:
    """Return a product of rows and weights, with a bias."""
    x, weights, bias = site.input(0), site.input(1), site.optional(2)
    out, depth = weights.shape
    rows = reshape_node(emit, x, (prod(x.shape) // depth, depth))
    result = (rows.shape[0], out)
    final = (*x.shape[:-1], out) if site.options.get("keep_num_dims") else result
    if weights.is_constant:
        y = convolution_node(site, emit, "fully_connected", (rows, weights, bias), result, None)
        return reshape_node(emit, y, final)
    y = emit.node("matmul", [rows, weights], result, MatMul(adjoint_left=False, adjoint_right=True))
    if bias is not None:
        y = emit.node("map", [y, bias], result, None, (EpilogueOp("add", (Value(0), Input(1))),))
    y = emit.node("map", [y], result, None, emit.activation(site))
    return reshape_node(emit, y, final)
