"""Long windows of few input channels: all that a window sees becomes the channels of one pixel.

A product on matrix units takes 16 inner indices, of an image of one channel four taps: three quarters of it are zeros.
Copied side by side, 16 taps are one product, and the convolution is a pointwise one. (In the literature im2col.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tflgpu.graph.ir import Node, Tensor, TensorId
from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.gpu.divided.division import Division, fits
from tflgpu.kernels.gpu.divided.shared_sums import least_cycles, waiting_cycles
from tflgpu.kernels.kernel import Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count, waves
from tflgpu.ops.image.convolution import Convolution
from tflgpu.ops.image.window import POINTWISE, Window
from tflgpu.target import Target


@dataclass(frozen=True)
class Patches:
    """Input: an image [batch, height, width, channels]. Output: [batch, rows, columns, kh * kw * channels].

    That is what the window sees at each of its places, zeros where it sees none of the image.
    """

    window: Window


def divided(request: Request, fresh: Iterator[TensorId]) -> tuple[Division, float] | None:
    """The two nodes in the place of a convolution, and their cycles.

    None if its image wastes nothing, or patches would be too large.
    """
    node, attributes, image, target = request.node, request.node.attributes, request.input(0), request.target
    if not isinstance(attributes, Convolution) or image.channels >= LANES:
        return None
    weights, g = request.constant(1), request.output.geometry
    channels = prod(attributes.window.kernel) * image.channels
    shape = (g.batch, g.height, g.width, channels)
    precise = request.graph[node.inputs[0]].precise
    # What products would round, patches may round.
    rounded = "half" in (image.type, request.output.type) and not precise
    between = Storage(Geometry(shape), target.storage if rounded else image.type)
    if channels == image.channels or not fits(between, target):
        return None
    flat = weights.reshape(len(weights), 1, 1, channels)
    constant = Tensor(next(fresh), "", flat.shape, flat.dtype.name, flat)
    patches = Tensor(next(fresh), "", shape, precise=precise)
    first = Node("patches", (node.inputs[0],), patches.id, Patches(attributes.window), sources=node.sources)
    second = replace(node, inputs=(patches.id, constant.id, *node.inputs[2:]), attributes=Convolution(POINTWISE))
    graph, storage = request.graph.with_nodes([first, second], [constant, patches]), {patches.id: between}
    alone = Request(second, graph, {**request.storage, **storage}, target)
    cycles = _copying_cycles(between, target) + least_cycles(alone)
    return Division((first, second), (constant, patches), storage), cycles


def _copying_cycles(patches: Storage, target: Target) -> float:
    """Of a kernel whose work-groups hide each other's waits: a work-item loads four numbers and stores a vec4."""
    model = target.cost_model
    busy = model.working(target.local_size, LANES + 1, 0, ())
    copying = waves(tile_count(patches.geometry.vec4s, target.local_size), target) * busy
    return waiting_cycles(target) + model.kernel(waves=1, phases=model.batch_latency) + copying
