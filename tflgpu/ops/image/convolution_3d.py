"""CONV_3D and CONV_3D_TRANSPOSE as convolutions of images.

A frame of the result is a convolution of the frames under its window, whose channels lie side by side. A transposed
one has frames of zeros between those of its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.ops.declaration import Emitter, Site, declare, numbers, static
from tflgpu.ops.image.convolution import Convolution, TransposeConvolution, bias_reasons, convolution_node
from tflgpu.ops.image.window import SAME, reach_reasons, same_padding, span, window_of, window_reasons
from tflgpu.ops.movement.shaping import AxisMap, Concatenate, Rearrange, reshape_node

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
