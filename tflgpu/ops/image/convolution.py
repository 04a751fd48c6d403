"""CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV, FULLY_CONNECTED, and CONV_3D as convolutions of images.

A frame of what CONV_3D gives is a convolution of the frames under its window, whose channels lie side by side. A
transposed one has frames of zeros between those of its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tflgpu.graph.ir import EpilogueOp, Input, Node, Tensor, Value
from tflgpu.graph.layout import Shape
from tflgpu.ops.arithmetic.matmul import MatMul
from tflgpu.ops.declaration import Emitter, Site, declare, numbers, static
from tflgpu.ops.image.window import SAME, Window, reach_reasons, same_padding, span, window_of, window_reasons
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange, reshape_node


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


RANK = 5  # [batch, depth, height, width, channels]


@dataclass(frozen=True)
class Depth:
    """The window along the axis of frames: frames that it sees, between two of its places, of its taps, and before."""

    kernel: int
    stride: int
    dilation: int
    before: int

    def output(self, frames: int, after: int) -> int:
        """Return the frames of a convolution's result.

        Args:
            frames: Those of the input.
            after: Frames of zeros after the last one.
        """
        return (frames + self.before + after - span(self.kernel, self.dilation)) // self.stride + 1


def _depth(site: Site, kernel: int, frames: int) -> tuple[Depth, int]:
    """Return the window along the depth of a convolution of ``frames`` frames, and the number of zero frames after
    them."""
    stride, dilation = (max(1, site.options.get(name, 1)) for name in ("stride_d", "dilation_d_factor"))
    padded = site.options["padding"] == SAME
    before, after = same_padding(frames, kernel, stride, dilation) if padded else (0, 0)
    return Depth(kernel, stride, dilation, before), after


def _frames(emit: Emitter, x: Tensor, count: int, taps: Sequence[tuple[int, int]]) -> Tensor:
    """``count`` frames as a batch of images, in which the frames of all taps lie side by side along the channels.

    taps: the first frame of each, and the step to the next. Frames outside of ``x`` are zero.
    """
    batch, depth, *image = x.shape
    shape = (batch, count, *image)
    moved = []
    for start, step in taps:
        inside = start >= 0 and start + (count - 1) * step < depth
        axes = tuple(AxisMap(i, start, step) if i == 1 else AxisMap(i) for i in range(RANK))
        whole = inside and (start, step, count) == (0, 1, depth)
        tap = x if whole else emit.node("rearrange", [x], shape, Rearrange(axes, None if inside else 0.0))
        moved.append(reshape_node(emit, tap, (batch * count, *image)))
    if len(moved) == 1:
        return moved[0]
    joined = (*moved[0].shape[:-1], len(taps) * image[-1])
    return emit.node("concatenate", moved, joined, Concatenate(3))


def _weights(emit: Emitter, site: Site, outputs: int) -> Tensor:
    """Weights [depth, height, width, ...] as those of images. outputs: the axis of the output channels, 3 or 4."""
    data = site.known(1)
    kd, kh, kw = data.shape[:3]
    moved = data.transpose(outputs, 1, 2, 0, 7 - outputs)
    return emit.constant(moved.reshape(data.shape[outputs], kh, kw, kd * data.shape[7 - outputs]).copy())


def _kernel(weights: Tensor) -> tuple[int, int]:
    """Return the height and width of weights of images."""
    return weights.shape[1], weights.shape[2]


def _of_images(x: Shape) -> Shape:
    return (x[0], *x[2:])


def _reasons(site: Site) -> Iterator[str]:
    yield from static(site, 1, "weights")
    x, weights = site.input(0).shape, site.input(1).shape
    if len(x) != RANK or len(weights) != RANK or weights[3] != x[4] or 0 in weights:
        yield f"its weights {list(weights)} do not fit its input {list(x)}"
        return
    if min(site.options.get("stride_d", 1), site.options.get("dilation_d_factor", 1)) < 1:
        yield "its strides and dilations must be positive"
        return
    faults = [*window_reasons(site, (weights[1], weights[2]), _of_images(x))]
    yield from faults
    if not faults:
        depth, after = _depth(site, weights[0], x[1])
        if depth.output(x[1], after) < 1:
            yield f"its window of {weights[0]} frames is larger than the input of {x[1]}"
    yield from bias_reasons(site, 2, weights[4])


@declare("CONV_3D", versions=1, inputs=(2, 3), empty=False, reasons=_reasons)
def conv_3d(site: Site, emit: Emitter) -> Tensor:
    """Return a convolution over frames, rows and columns."""
    x, weights = site.input(0), _weights(emit, site, 4)
    depth, after = _depth(site, site.input(1).shape[0], x.shape[1])
    count = depth.output(x.shape[1], after)
    taps = [(i * depth.dilation - depth.before, depth.stride) for i in range(depth.kernel)]
    images = _frames(emit, x, count, taps)
    window = window_of(site, _kernel(weights), images.shape)
    shape = (images.shape[0], *window.output(*images.shape[1:3]), weights.shape[0])
    y = convolution_node(site, emit, "convolution", (images, weights, site.optional(2)), shape, Convolution(window))
    return reshape_node(emit, y, (x.shape[0], count, *shape[1:]))


def _transposed_reasons(site: Site) -> Iterator[str]:
    yield from static(site, 0, "output shape")
    yield from static(site, 1, "weights")
    if site.constant(0) is None:
        return
    shape, weights, x = tuple(numbers(site, 0)), site.input(1).shape, site.input(2).shape
    fits = len(shape) == len(x) == len(weights) == RANK and weights[3:] == (shape[4], x[4]) and shape[0] == x[0]
    if not fits or 0 in weights or min(shape) < 1:
        yield f"its weights {list(weights)} and its output shape {list(shape)} do not fit its input {list(x)}"
        return
    names = [f"{name}{axis}{end}" for axis in "dhw" for name, end in (("stride_", ""), ("dilation_", "_factor"))]
    if min(site.options.get(name, 1) for name in names) < 1:
        yield "its strides and dilations must be positive"
        return
    if max(site.options.get(f"dilation_{axis}_factor", 1) for axis in "hw") > 1:
        yield "its window has gaps between rows or columns"
        return
    depth, after = _depth(site, weights[0], shape[1])
    window = window_of(site, (weights[1], weights[2]), _of_images(shape))
    if (depth.output(shape[1], after), *window.output(*shape[2:4])) != x[1:4]:
        yield f"its output shape {list(shape)} does not lead back to the input's {list(x)}"
    yield from reach_reasons(window, _of_images(shape))
    yield from bias_reasons(site, 3, weights[3])


@declare("CONV_3D_TRANSPOSE", versions=1, inputs=(3, 4), integers=(0,), empty=False, reasons=_transposed_reasons)
def conv_3d_transpose(site: Site, emit: Emitter) -> Tensor:
    """Return a transposed convolution over frames, rows and columns."""
    x, shape, weights = site.input(2), tuple(numbers(site, 0)), _weights(emit, site, 3)
    depth, _ = _depth(site, site.input(1).shape[0], shape[1])
    batch, frames, *image = x.shape
    if depth.stride > 1:
        apart = reshape_node(emit, x, (batch * frames, 1, *image))
        axes = tuple(map(AxisMap, range(RANK)))
        spread = (batch * frames, depth.stride, *image)
        apart = emit.node("rearrange", [apart], spread, Rearrange(axes, fill=0.0))
        x = reshape_node(emit, apart, (batch, frames * depth.stride, *image))
    taps = [(depth.before - i * depth.dilation, 1) for i in range(depth.kernel)]
    images = _frames(emit, x, shape[1], taps)
    result = (images.shape[0], *shape[2:])
    attributes = TransposeConvolution(window_of(site, _kernel(weights), result))
    operands = images, weights, site.optional(3)
    return reshape_node(
        emit, convolution_node(site, emit, "transpose_convolution", operands, result, attributes), shape
    )
