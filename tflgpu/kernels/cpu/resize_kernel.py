"""Resizing on CPUs, row by row."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, local_vec4s, tile_count
from tflgpu.ops.image.resize import Resize

OPERATIONS = 6 * LANES  # of a vec4: three interpolations


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
    rows = items_per_tile(g.height * g.batch, request.target, OPERATIONS * g.width * g.slices)
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
