"""Convolutions of few output channels as two nodes, in one of two ways, wherever that is faster.

A convolution reads each pixel once for every tap, and of one or two channels throws most of what tensor cores compute
away. A pointwise convolution that has the channels of all taps reads each pixel once and wastes nothing; what is left
are sums, each of one number of every tap. It is the same for any stride and dilation, and for a transposed convolution,
whose taps meet other pixels. (In the literature kn2row, and GEMM with col2im.)

A kernel computes at least a vec4 of channels, on tensor cores 16: of a convolution of one or two channels it would
throw the others away. P neighbouring pixels of N taps see N + P - 1 pixels of the image, so they are one pixel of P
times as many channels and a window that long, in which the weights of each pixel lie one further than those of the
one before, among zeros. Windows are then P pixels apart. A second kernel gives the pixels their places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil, inf, log2, prod
from operator import itemgetter

import numpy as np

from tflgpu.graph.ir import Array, Node, Tensor
from tflgpu.graph.layout import Geometry
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.fusing import epilogue_behind, kernel_inputs
from tflgpu.kernels.gpu import GPU
from tflgpu.kernels.gpu.shared_sums import Division, divide_nodes, fits, joining_cycles, least_cycles, waiting_cycles
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.rewriting import Planning
from tflgpu.kernels.tiling import tile_count, waves
from tflgpu.ops.image.convolution import Convolution, TransposeConvolution
from tflgpu.ops.image.window import POINTWISE, Padding, Window
from tflgpu.ops.movement.shaping import Factor, Strided
from tflgpu.target.corrections import corrected


@dataclass(frozen=True)
class TapSums:
    """Inputs: products [batch, height, width, kh * kw * out] of the taps of a convolution, optionally a bias [out].

    Each output adds up what the taps of its window have of its channel, each at the pixel that the tap meets.

    scale: a power of two by which products were divided, so that halves hold them.
    """

    convolution: Convolution | TransposeConvolution
    scale: float


def divided_by_taps(request: Request, new: NewTensors) -> tuple[Division, float] | None:
    """Return the two nodes in the place of a convolution, and their cycles; None if there would be too many
    products."""
    node, attributes, weights, target = request.node, request.node.attributes, request.constant(1), request.target
    assert isinstance(attributes, Convolution | TransposeConvolution)
    image, channels = request.input(0), prod(weights.shape[:3])
    shape, precise = (*image.geometry.shape[:3], channels), request.graph[node.output].precise
    # To round each product of a window adds as much to the error as to round its pixels did.
    in_half = image.type == "half" and not precise
    between = Storage(Geometry(shape), "half" if in_half else "float")
    if channels == len(weights) or not fits(between, target):
        return None
    of_taps = np.ascontiguousarray(np.moveaxis(weights, 0, 2)).reshape(channels, 1, 1, -1)
    scale = _scale(of_taps) if in_half else 1.0
    if scale > 1:
        of_taps = (of_taps / scale).astype(np.float32)
    inputs = node.inputs[0], new.constant(of_taps)
    products = new.add(Tensor(-1, "", shape, precise=precise))
    first = Node("convolution", inputs, products.id, Convolution(POINTWISE), sources=node.sources)
    epilogue = epilogue_behind(node, kernel_inputs(node) - 1)
    sums = TapSums(attributes, scale)
    second = Node("tap_sums", (products.id, *node.inputs[2:]), node.output, sums, epilogue, node.sources)
    storage = {products.id: between}
    graph, known = request.graph.with_nodes([first, second], new), {**request.storage, **storage}
    cycles = sum(least_cycles(Request(each, graph, known, target)) for each in (first, second))
    return Division((first, second), storage), cycles + waiting_cycles(target)


def _scale(weights: Array) -> float:
    """Return the power of two by which weights are divided so that no product of halves is larger than any half."""
    most = np.abs(weights.astype(np.float64)).sum(axis=3).max(initial=0.0)
    return float(2.0 ** max(0, ceil(log2(most)))) if 0 < most < inf else 1.0


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


def divided_by_width(request: Request, new: NewTensors) -> tuple[Division, float] | None:
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


FEW_OUTPUTS = 16


Divide = Callable[[Request, NewTensors], tuple[Division, float] | None]

# Ways to make two nodes of a convolution, by their names in the table of corrections.
WAYS: dict[str, Divide] = {"width blocking": divided_by_width, "kn2row": divided_by_taps}


@GPU.rewrite("divide")
def divide_convolutions(planning: Planning) -> Planning:
    """Put two nodes for a convolution wherever they take less time by the cost model."""
    return divide_nodes(planning, _fastest)


def _fastest(request: Request, new: NewTensors) -> Division | None:
    """Return the nodes that take the least time; None if the node as it is takes less."""
    if not _is_dividable(request):
        return None
    whole = least_cycles(request)
    if whole == inf:
        return None
    found = [(name, divided(request, new)) for name, divided in WAYS.items()]
    cycles = [(corrected(name, two[1], whole), two[0]) for name, two in found if two]
    least, best = min(cycles, key=itemgetter(0), default=(inf, None))
    return best if least < whole else None


def _is_dividable(request: Request) -> bool:
    """Whether a node is a convolution of known weights, transposed or not, to few channels."""
    node, attributes = request.node, request.node.attributes
    if node.kind not in ("convolution", "transpose_convolution") or 0 in node.epilogue_inputs:
        return False
    assert isinstance(attributes, Convolution | TransposeConvolution)
    if attributes.groups > 1 or not request.is_constant(1) or request.input(0).vector != "float":
        return False
    return request.output.channels <= FEW_OUTPUTS
