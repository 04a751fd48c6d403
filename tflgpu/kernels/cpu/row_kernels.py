"""Kernels for CPUs that go row by row: depthwise convolutions, pooling, resizing, softmax and layer normalization."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.architecture import lower_node
from tflgpu.kernels.convolutions import depthwise_arguments, unrolls
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, local_vec4s, tile_count
from tflgpu.ops.arithmetic.reduction import LayerNorm, Softmax
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.ops.image.resize import Resize
from tflgpu.ops.image.window import Pool, Window, span
from tflgpu.target import ElementType
from tflgpu.target.kernel_numbers import kernel_numbers

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


MOST_TERMS = 64  # that are added up one after another, as ``templates/access/long_sums.cl.j2`` has it
POOL_OPERATIONS = 16  # of a vec4 that is read: loading it takes longer than what is computed


def _has_short_sums(request: Request) -> bool:
    """Whether the window has no padding, and sums of it are not added up in blocks."""
    attributes = request.node.attributes
    if not isinstance(attributes, Pool) or any(attributes.window.padding):
        return False
    return attributes.function == "maximum" or prod(attributes.window.kernel) <= MOST_TERMS


@dataclass(frozen=True, kw_only=True)
class PoolRowsParameters(Parameters, template="cpu/pool_rows", stores_once=True):
    """Parameters of ``templates/cpu/pool_rows.cl.j2``."""

    function: str
    window: Window
    rows_per_tile: Size
    src: Storage


@CPU.lowering("pool", when=_has_short_sums, reads_grids=True)
def pool_rows(request: Request) -> Kernel:
    """Pooling whose tile is some rows of a slice."""
    attributes, g = request.attributes(Pool), request.output.geometry
    cost = POOL_OPERATIONS * prod(attributes.window.kernel) * g.width
    rows = g.height * g.slices * g.batch
    per_tile = items_per_tile(rows, request.target, cost)
    return Kernel(
        PoolRowsParameters(
            function=attributes.function,
            window=attributes.window,
            rows_per_tile=per_tile,
            src=request.input(0),
        ),
        (request.activation("src", 0),),
        tiles=tile_count(rows, per_tile),
        local_size=1,
        takes_sizes=True,
    )


RESIZE_OPERATIONS = 6 * LANES  # of a vec4: three interpolations


def _reads_most_columns(request: Request) -> bool:
    """Whether rows that are blended as a whole are read for the most part, and have room."""
    is_wide = 2 * request.output.width >= request.input(0).width
    return is_wide and _workspace(request) <= local_vec4s(request.target)


def _workspace(request: Request) -> int:
    """Return a row of a slice with two more columns, or of all where pixels are stored, and two numbers for each
    column."""
    src, dst = request.input(0), request.output
    return (src.slices if dst.linear else 1) * (src.width + 2) + tile_count(2 * dst.width, LANES)


@dataclass(frozen=True, kw_only=True)
class ResizeBlendedParameters(Parameters, template="cpu/resize_blended", stores_once=True):
    """Parameters of ``templates/cpu/resize_blended.cl.j2``."""

    scale: tuple[float, float]
    offset: tuple[float, float]
    chunks: Size
    rows_per_tile: Size
    src: Storage


@CPU.lowering("resize_bilinear", when=_reads_most_columns, reads_grids=True)
def resize_blended(request: Request) -> Kernel:
    """Bilinear resizing that blends whole rows of the image first."""
    attributes, g = request.attributes(Resize), request.output.geometry
    rows = items_per_tile(g.height * g.batch, request.target, RESIZE_OPERATIONS * g.width * g.slices)
    rows = min(g.height, rows)
    chunks = tile_count(g.height, rows)
    return Kernel(
        ResizeBlendedParameters(
            scale=attributes.scale,
            offset=attributes.offset,
            chunks=chunks,
            rows_per_tile=rows,
            src=request.input(0),
        ),
        (request.activation("src", 0),),
        tiles=g.batch * chunks,
        local_size=1,
        workspace=_workspace(request),
        takes_sizes=True,
    )


@dataclass(frozen=True, kw_only=True)
class RowNumbers:
    """Numbers of softmax.

    Attributes:
        kept_slices: Slices of four pixels whose exponentials are kept: 16 KiB, a third of the smallest first cache.
        exponential: Operations that one is taken to be.
    """

    kept_slices: int
    exponential: int


ROW_NUMBERS = kernel_numbers("cpu/rows", RowNumbers)


@dataclass(frozen=True, kw_only=True)
class SoftmaxVectorsParameters(ItemParameters, template="rows/softmax_vectors", stores_once=True):
    """Parameters of ``templates/rows/softmax_vectors.cl.j2``."""

    beta: float
    log: bool
    kept: bool
    src: Storage
    dirty: bool = True


@dataclass(frozen=True, kw_only=True)
class LayerNormVectorsParameters(ItemParameters, template="rows/layer_norm_vectors", stores_once=True):
    """Parameters of ``templates/rows/layer_norm_vectors.cl.j2``."""

    epsilon: float
    centered: bool
    src: Storage
    dirty: bool = True


def _row_kernel(request: Request, operations: int, parameters: ItemParameters) -> Kernel:
    """operations: of an element."""
    g, arguments = request.output.geometry, [request.activation("src", 0)]
    quads, rest = divmod(g.plane, LANES)
    items = g.batch * (quads + rest)
    cost = operations * g.pixels * g.channels // items
    return replace(item_kernel(request, parameters, arguments, cost, items=items), fills_vectors=True, takes_sizes=True)


@CPU.lowering("softmax", reads_grids=True)
def softmax(request: Request) -> Kernel:
    """Softmax of the channels of four pixels at a time."""
    attributes = request.attributes(Softmax)
    kept = not attributes.log and request.output.geometry.slices <= ROW_NUMBERS.kept_slices
    parameters = SoftmaxVectorsParameters(beta=attributes.beta, log=attributes.log, kept=kept, src=request.input(0))
    return _row_kernel(request, ROW_NUMBERS.exponential, parameters)


@CPU.lowering("layer_norm", reads_grids=True)
def layer_norm(request: Request) -> Kernel:
    """Layer normalization of the channels of four pixels at a time."""
    attributes = request.attributes(LayerNorm)
    epsilon, centered = attributes.epsilon, attributes.centered
    parameters = LayerNormVectorsParameters(epsilon=epsilon, centered=centered, src=request.input(0))
    return _row_kernel(request, 6, parameters)
