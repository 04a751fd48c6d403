"""Pooling without padding on CPUs, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tflgpu.graph.layout import Size
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.image.window import Pool, Window

MOST_TERMS = 64  # that are added up one after another, as ``templates/access/long_sums.cl.j2`` has it
OPERATIONS = 16  # of a vec4 that is read: loading it takes longer than what is computed


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
    cost = OPERATIONS * prod(attributes.window.kernel) * g.width
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
