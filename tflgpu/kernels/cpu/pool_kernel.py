"""Pooling without padding on CPUs, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.kernel import Kernel, Parameters, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.image.pooling import Pool
from tflgpu.ops.image.window import Window

OPERATIONS = 16  # of a vec4 that is read: loading it takes longer than what is computed


def _has_no_padding(request: Request) -> bool:
    attributes = request.node.attributes
    return isinstance(attributes, Pool) and not any(attributes.window.padding)


@dataclass(frozen=True, kw_only=True)
class PoolRowsParameters(Parameters, template="cpu/pool_rows"):
    """Parameters of ``templates/cpu/pool_rows.cl.j2``."""

    function: str
    window: Window
    rows_per_tile: int
    src: Storage


@CPU.lowering("pool", when=_has_no_padding, reads_grids=True)
def pool_rows(request: Request) -> Kernel:
    """Pooling whose tile is some rows of a slice."""
    attributes, g = request.node.attributes, request.output.geometry
    assert isinstance(attributes, Pool)
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
