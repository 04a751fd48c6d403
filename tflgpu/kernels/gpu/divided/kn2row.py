"""Windows of few output channels: the products of all taps with every pixel, and then the sums of those of a window.

A convolution reads each pixel once for every tap, and of one or two channels throws most of what tensor cores compute
away. A pointwise convolution that has the channels of all taps reads each pixel once and wastes nothing; what is left
are sums, each of one number of every tap. It is the same for any stride and dilation, and for a transposed convolution,
whose taps meet other pixels. (In the literature kn2row, and GEMM with col2im.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, log2, prod

import numpy as np

from tflgpu.graph.ir import Array, Node, Tensor
from tflgpu.graph.layout import Geometry
from tflgpu.graph.rewrite_rules import NewTensors
from tflgpu.kernels.fusing import epilogue_behind, kernel_inputs
from tflgpu.kernels.gpu.divided.division import Division, fits
from tflgpu.kernels.gpu.divided.shared_sums import least_cycles, waiting_cycles
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.image.convolution import Convolution, TransposeConvolution
from tflgpu.ops.image.window import POINTWISE


@dataclass(frozen=True)
class TapSums:
    """Inputs: products [batch, height, width, kh * kw * out] of the taps of a convolution, optionally a bias [out].

    Each output adds up what the taps of its window have of its channel, each at the pixel that the tap meets.

    scale: a power of two by which products were divided, so that halves hold them.
    """

    convolution: Convolution | TransposeConvolution
    scale: float


def divided(request: Request, new: NewTensors) -> tuple[Division, float] | None:
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
