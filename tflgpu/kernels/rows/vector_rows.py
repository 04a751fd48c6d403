"""Kernels for CPUs that go several times through all channels of a pixel: softmax and layer normalization."""

from __future__ import annotations

from tflgpu.graph.layout import LANES
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.ops.arithmetic.layer_norm import LayerNorm
from tflgpu.ops.arithmetic.reduction import Softmax

KEPT_SLICES = 256  # of four pixels: 16 KiB of exponentials, a third of the smallest cache of a core
EXPONENTIAL = 10  # operations


def _row_kernel(request: Request, template: str, operations: int, parameters: dict[str, object]) -> Kernel:
    """operations: of an element."""
    g, target = request.output.geometry, request.target
    quads, rest = divmod(g.plane, LANES)
    items = g.batch * (quads + rest)
    per_tile = items_per_tile(items, target, operations * g.pixels * g.channels // items)
    return Kernel(
        template,
        {**parameters, "dirty": True, "per_tile": per_tile, "src": request.input(0)},
        (request.activation("src", 0),),
        tiles=tile_count(items, per_tile),
        local_size=1,
        fills_vectors=True,
    )


@CPU.lowering("softmax")
def softmax(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, Softmax)
    kept = not attributes.log and request.output.geometry.slices <= KEPT_SLICES
    parameters: dict[str, object] = {"beta": attributes.beta, "log": attributes.log, "kept": kept}
    return _row_kernel(request, "rows/softmax_vectors", EXPONENTIAL, parameters)


@CPU.lowering("layer_norm")
def layer_norm(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, LayerNorm)
    return _row_kernel(request, "rows/layer_norm_vectors", 6, {"epsilon": attributes.epsilon})
