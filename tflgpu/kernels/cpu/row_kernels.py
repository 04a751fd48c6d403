"""Kernels for CPUs that go several times through all channels of a pixel: softmax and layer normalization."""

from __future__ import annotations

from dataclasses import replace

from tflgpu.graph.layout import LANES
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.items import item_kernel
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.arithmetic.layer_norm import LayerNorm
from tflgpu.ops.arithmetic.reduction import Softmax

KEPT_SLICES = 256  # of four pixels: 16 KiB of exponentials, a third of the smallest cache of a core
EXPONENTIAL = 10  # operations


def _row_kernel(request: Request, template: str, operations: int, parameters: dict[str, object]) -> Kernel:
    """operations: of an element."""
    g, arguments = request.output.geometry, [request.activation("src", 0)]
    quads, rest = divmod(g.plane, LANES)
    items = g.batch * (quads + rest)
    cost = operations * g.pixels * g.channels // items
    kernel = item_kernel(
        request, template, {**parameters, "dirty": True, "src": request.input(0)}, arguments, cost, items=items
    )
    return replace(kernel, fills_vectors=True)


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
