"""Kernels of pooling and unpooling."""

from __future__ import annotations

from math import prod

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.image.mediapipe import PoolIndex, Unpool
from tflgpu.ops.image.pooling import Pool
from tflgpu.ops.image.window import Window


@PORTABLE.lowering("pool_index")
def pool_index_kernel(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, PoolIndex)
    return _vec4_kernel(request, "portable/pool_index", attributes.window, ("src",))


@PORTABLE.lowering("unpool")
def unpool_kernel(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, Unpool)
    return _vec4_kernel(request, "portable/unpool", attributes.window, ("src", "indices"))


def _vec4_kernel(request: Request, template: str, window: Window, names: tuple[str, ...]) -> Kernel:
    """A kernel whose work-items compute a vec4 of the output each; its inputs are activations under ``names``."""
    g, target = request.output.geometry, request.target
    per_tile = items_per_tile(g.vec4s, target, 8 * window.kernel[0] * window.kernel[1])
    inputs = {name: request.input(i) for i, name in enumerate(names)}
    return Kernel(
        template,
        {"window": window, "per_tile": per_tile, **inputs},
        tuple(request.activation(name, i) for i, name in enumerate(names)),
        tiles=tile_count(g.vec4s, per_tile),
        local_size=target.local_size,
    )


@PORTABLE.lowering("pool")
def pool_kernel(request: Request) -> Kernel:
    attributes, g, target = request.node.attributes, request.output.geometry, request.target
    assert isinstance(attributes, Pool)
    per_tile = items_per_tile(g.vec4s, target, 4 * prod(attributes.window.kernel))
    return Kernel(
        "portable/pool",
        {"function": attributes.function, "window": attributes.window, "per_tile": per_tile, "src": request.input(0)},
        (request.activation("src", 0),),
        tiles=tile_count(g.vec4s, per_tile),
        local_size=target.local_size,
    )
