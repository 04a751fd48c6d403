"""Resizing on CPUs, row by row."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.kernels.cpu import CPU, VECTOR
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, local_vec4s, tile_count
from tflgpu.ops.image.resize import Resize

OPERATIONS = 6 * LANES  # of a vec4: three interpolations


def _takes_whole_pixels(request: Request) -> bool:
    """Whether pixels are stored as they are, in the host's order, with channels for whole vectors."""
    dst = request.output
    plain = dst.linear and dst.type == "float" and dst.channels >= VECTOR and not request.node.epilogue
    return plain and _pixels_workspace(request) <= local_vec4s(request.target)


def _reads_all_columns(request: Request) -> bool:
    """Whether rows that are blended as a whole are not blended in vain, and have room."""
    is_wider = request.output.width >= request.input(0).width
    return is_wider and _rows_workspace(request) <= local_vec4s(request.target)


def _pixels_workspace(request: Request) -> int:
    """A row of the image, and three numbers for each column of the result."""
    src = request.input(0)
    return src.slices * src.width + tile_count(3 * request.output.width, LANES)


def _rows_workspace(request: Request) -> int:
    """A row of a slice with two more columns, or of all where pixels are stored, and two numbers for each column."""
    src, dst = request.input(0), request.output
    return (src.slices if dst.linear else 1) * (src.width + 2) + tile_count(2 * dst.width, LANES)


@dataclass(frozen=True, kw_only=True)
class ResizeParameters(Parameters):
    """Parameters of templates that resize rows."""

    scale: tuple[float, float]
    offset: tuple[float, float]
    chunks: int
    rows_per_tile: int
    src: Storage


@dataclass(frozen=True, kw_only=True)
class ResizePixelsParameters(ResizeParameters, template="cpu/resize_pixels"):
    """Parameters of ``templates/cpu/resize_pixels.cl.j2``."""


@dataclass(frozen=True, kw_only=True)
class ResizeBlendedParameters(ResizeParameters, template="cpu/resize_blended"):
    """Parameters of ``templates/cpu/resize_blended.cl.j2``."""


@dataclass(frozen=True, kw_only=True)
class ResizeRowsParameters(ResizeParameters, template="cpu/resize_rows"):
    """Parameters of ``templates/cpu/resize_rows.cl.j2``."""


@CPU.lowering("resize_bilinear", when=_takes_whole_pixels, reads_grids=True)
def resize_pixels(request: Request) -> Kernel:
    """Bilinear resizing to whole pixels in row-major order."""
    return _kernel(request, ResizePixelsParameters, _pixels_workspace(request))


@CPU.lowering("resize_bilinear", when=_reads_all_columns, reads_grids=True)
def resize_blended(request: Request) -> Kernel:
    """Bilinear resizing that blends whole rows of the image first."""
    return _kernel(request, ResizeBlendedParameters, _rows_workspace(request))


@CPU.lowering("resize_bilinear", reads_grids=True)
def resize_rows(request: Request) -> Kernel:
    """Bilinear resizing row by row."""
    return _kernel(request, ResizeRowsParameters, 0)


def _kernel(request: Request, made: type[ResizeParameters], workspace: int) -> Kernel:
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, Resize)
    rows = items_per_tile(g.height * g.batch, request.target, OPERATIONS * g.width * g.slices)
    rows = min(g.height, rows)
    chunks = tile_count(g.height, rows)
    return Kernel(
        made(
            scale=attributes.scale,
            offset=attributes.offset,
            chunks=chunks,
            rows_per_tile=rows,
            src=request.input(0),
        ),
        (request.activation("src", 0),),
        tiles=g.batch * chunks,
        local_size=1,
        workspace=workspace,
        takes_sizes=True,
    )
