"""Kernels of pooling and unpooling."""

from __future__ import annotations

from math import prod

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import item_kernel
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.image.mediapipe import PoolIndex, Unpool
from tflgpu.ops.image.pooling import Pool
from tflgpu.ops.image.window import Window


@PORTABLE.lowering("pool_index")
def pool_index_kernel(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, PoolIndex)
    return _index_kernel(request, "portable/pool_index", attributes.window, ("src",))


@PORTABLE.lowering("unpool")
def unpool_kernel(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, Unpool)
    return _index_kernel(request, "portable/unpool", attributes.window, ("src", "indices"))


def _index_kernel(request: Request, template: str, window: Window, names: tuple[str, ...]) -> Kernel:
    """A kernel whose inputs are activations under ``names``."""
    inputs = {name: request.input(i) for i, name in enumerate(names)}
    arguments = [request.activation(name, i) for i, name in enumerate(names)]
    return item_kernel(request, template, {"window": window, **inputs}, arguments, 8 * prod(window.kernel))


@PORTABLE.lowering("pool")
def pool_kernel(request: Request) -> Kernel:
    attributes = request.node.attributes
    assert isinstance(attributes, Pool)
    parameters = {"function": attributes.function, "window": attributes.window, "src": request.input(0)}
    cost = 4 * prod(attributes.window.kernel)
    return item_kernel(request, "portable/pool", parameters, [request.activation("src", 0)], cost)
