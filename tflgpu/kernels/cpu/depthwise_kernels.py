"""Depthwise convolutions on CPUs: whole rows, with taps and weights in registers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.architecture import lower_node
from tflgpu.kernels.convolutions import depthwise_arguments, unrolls
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, local_vec4s, tile_count
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.ops.image.window import Window, span
from tflgpu.target import ElementType

# Most taps of a window: for each slice their weights are kept as 4 KiB of floats.
MOST_TAPS = 256


def _has_one_channel(request: Request) -> bool:
    """Whether each output channel sees the same input channel."""
    return request.input(0).channels == 1 < request.output.channels and request.is_constant(1)


@CPU.lowering("depthwise", when=_has_one_channel, reads_grids=True)
def dense_convolution(request: Request) -> Kernel:
    """Lower a depthwise convolution of one channel as a dense one."""
    attributes, weights = request.attributes(Depthwise), request.node.inputs[1]
    data = request.constant(1).transpose(3, 1, 2, 0)
    tensors = {**request.graph.tensors, weights: replace(request.graph[weights], data=data, shape=data.shape)}
    node = replace(request.node, kind="convolution", attributes=Convolution(attributes.window))
    return lower_node(replace(request, node=node, graph=replace(request.graph, tensors=tensors)))


def _is_small(request: Request) -> bool:
    attributes = request.attributes(Depthwise)
    return attributes.multiplier == 1 and prod(attributes.window.kernel) <= MOST_TAPS


@dataclass(frozen=True, kw_only=True)
class DepthwiseRowsParameters(Parameters, template="cpu/depthwise_rows", stores_once=True):
    """Parameters of ``templates/cpu/depthwise_rows.cl.j2``."""

    window: Window
    widens: bool
    unrolled: bool
    upright: bool
    chunks: Size
    rows_per_tile: Size
    src: Storage
    weights_type: ElementType
    factor_type: ElementType


@CPU.lowering("depthwise", when=_is_small, after=("dense_convolution",), reads_grids=True)
def depthwise_rows(request: Request) -> Kernel:
    """Return a depthwise convolution whose tile is some rows of a slice."""
    attributes, g = request.attributes(Depthwise), request.output.geometry
    taps = prod(attributes.window.kernel)
    upright = request.input(0).geometry.width == g.width == 1 and attributes.window.kernel[1] == 1
    height, width = (1, g.height) if upright else (g.height, g.width)
    rows = min(height, items_per_tile(height * g.slices * g.batch, request.target, 2 * taps * LANES * width))
    chunks = tile_count(height, rows)
    arguments = depthwise_arguments(request)
    workspace = wide_vec4s(attributes.window, request.input(0), upright=upright)
    if workspace > local_vec4s(request.target):
        workspace = 0
    parameters = DepthwiseRowsParameters(
        window=attributes.window,
        widens=workspace > 0,
        unrolled=unrolls(attributes),
        upright=upright,
        chunks=chunks,
        rows_per_tile=rows,
        src=request.input(0),
        weights_type=arguments[1].type,
        factor_type=request.factor_type(arguments[0].type, arguments[1].type),
    )
    tiles = g.batch * g.slices * chunks
    macs = taps * g.pixels * g.channels
    return Kernel(parameters, arguments, tiles, local_size=1, workspace=workspace, macs=macs)


def wide_vec4s(window: Window, src: Storage, *, upright: bool = False) -> int:
    """Local memory for the rows of an image on a grid that a window sees, as floats; 0 where that is not worthwhile."""
    if src.grid is None or prod(window.kernel) <= prod(window.stride):
        return 0
    height, width = (1, src.height) if upright else (src.height, src.width)
    return min(span(window.kernel[0], window.dilation[0]), height) * width
