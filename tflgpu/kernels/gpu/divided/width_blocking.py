"""Long windows of few output channels: neighbouring output pixels become channels of one.

A kernel computes at least a vec4 of channels, on tensor cores 16: of a convolution of one or two channels it would
throw the others away. P neighbouring pixels of N taps see N + P - 1 pixels of the image, so they are one pixel of P
times as many channels and a window that long, in which the weights of each pixel lie one further than those of the
one before, among zeros. Windows are then P pixels apart. A second kernel gives the pixels their places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import inf

import numpy as np

from tflgpu.graph.ir import Array, Node, Tensor
from tflgpu.graph.layout import Geometry
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.fusing import epilogue_behind, kernel_inputs
from tflgpu.kernels.gpu.divided.division import Division
from tflgpu.kernels.gpu.divided.shared_sums import joining_cycles, least_cycles
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count, waves
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import Padding, Window
from tflgpu.ops.movement.shaping import Factor, Strided

PIXELS = (2, 4, 8, 16, 32)
WEIGHTS = 1 << 22  # elements that the weights may grow to


@dataclass(frozen=True)
class _Wide:
    """A convolution whose channels are those of ``pixels`` neighbours along ``axis``, the first pixel's first.

    size: height and width of its result. movement: from there to the pixels' places.
    """

    axis: int
    pixels: int
    window: Window
    size: tuple[int, int]
    movement: Strided

    def weights(self, weights: Array) -> Array:
        """[out, kh, kw, in] of each pixel -> [pixels * out, kh, kw, in]."""
        out, *kernel, depth = weights.shape
        own = np.zeros((self.pixels, out, *self.window.kernel, depth), weights.dtype)
        for pixel in range(self.pixels):
            taps = [slice(None), slice(None)]
            taps[self.axis] = slice(pixel, pixel + kernel[self.axis])
            own[pixel][:, taps[0], taps[1]] = weights
        return own.reshape(-1, *own.shape[2:])


def divided(request: Request, new: NewTensors) -> tuple[Division, float] | None:
    """Return the nodes that take the least time by the cost model, and their cycles; None if there are none."""
    if not isinstance(request.node.attributes, Convolution):
        return None
    least, best = inf, None
    weights = request.constant(1)
    for wide in _ways(request):
        shape = (wide.pixels * len(weights), *wide.window.kernel, weights.shape[3])
        unknown = np.broadcast_to(np.zeros((), weights.dtype), shape)  # costs do not depend on numbers
        _, cycles = _division(request, wide, unknown, new)
        if cycles < least:
            best, least = wide, cycles
    return None if best is None else _division(request, best, best.weights(weights), new)


def _ways(request: Request) -> Iterator[_Wide]:
    """Yield some neighbours along one axis as channels, of which a last place may have fewer."""
    window, weights = request.attributes(Convolution).window, request.constant(1)
    g, src = request.output.geometry, request.input(0).geometry
    for axis, pixels in product((0, 1), PIXELS):
        extent, image = ((g.height, src.height), (g.width, src.width))[axis]
        fits = window.stride[axis] == window.dilation[axis] == 1 and pixels <= min(window.kernel[axis], extent)
        if not fits or pixels * weights.size > WEIGHTS or (axis == 0 and g.batch > 1 and extent % pixels):
            continue
        places, wide = tile_count(extent, pixels), pixels * g.channels
        kernel, stride, padding = list(window.kernel), list(window.stride), list(window.padding)
        kernel[axis] += pixels - 1
        stride[axis] = pixels
        padding[2 * axis + 1] = (places - 1) * pixels + kernel[axis] - padding[2 * axis] - image
        wide_window = Window((kernel[0], kernel[1]), (stride[0], stride[1]), window.dilation, Padding(*padding))
        size = (places, g.width) if axis == 0 else (g.height, places)
        rows = [(g.batch * places, g.width * wide), (pixels, g.channels), (g.width, wide), (g.channels, 1)]
        columns = [(g.batch * g.height, places * wide), (g.width * g.channels, 1)]
        movement = _movement((rows, columns)[axis])
        yield _Wide(axis, pixels, wide_window, size, movement)


def _movement(digits: list[tuple[int, int]]) -> Strided:
    """digits: extent and stride of each digit of a result's index."""
    return Strided(tuple(Factor(*digit) for digit in digits))


def _division(request: Request, wide: _Wide, weights: Array, new: NewTensors) -> tuple[Division, float]:
    """Return the two nodes, and their cycles. weights: [pixels * out, kh, kw, in]."""
    node, g, target = request.node, request.output.geometry, request.target
    bias = request.optional_constant(2)
    constants = [weights] if bias is None else [weights, np.tile(bias.reshape(-1), wide.pixels)]
    precise = request.graph[node.output].precise
    result = new.add(Tensor(-1, "", (g.batch, *wide.size, wide.pixels * g.channels), precise=precise))
    inputs = node.inputs[0], *map(new.constant, constants)
    convolution = Node("convolution", inputs, result.id, Convolution(wide.window), sources=node.sources)
    operands = result.id, *node.inputs[kernel_inputs(node) :]
    back = Node("strided", operands, node.output, wide.movement, epilogue_behind(node, 1), node.sources)
    storage = {result.id: Storage(Geometry(result.shape), "float")}
    graph = request.graph.with_nodes([convolution, back], new)
    alone = Request(convolution, graph, {**request.storage, **storage}, target)
    moving = waves(tile_count(g.vec4s, target.local_size), target)
    # A kernel that no cost model knows is no way: it may be slower.
    cycles = least_cycles(alone) + joining_cycles(target, moving)
    return Division((convolution, back), storage), cycles
