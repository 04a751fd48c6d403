"""Kernels of pooling and unpooling."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.image.mediapipe import PoolIndex, Unpool
from tflgpu.ops.image.window import Pool, Window


@dataclass(frozen=True, kw_only=True)
class PoolIndexParameters(ItemParameters, template="portable/pool_index", stores_once=True):
    """Parameters of ``templates/portable/pool_index.cl.j2``."""

    window: Window
    src: Storage


@dataclass(frozen=True, kw_only=True)
class UnpoolParameters(ItemParameters, template="portable/unpool", stores_once=True):
    """Parameters of ``templates/portable/unpool.cl.j2``."""

    window: Window
    src: Storage
    indices: Storage


@dataclass(frozen=True, kw_only=True)
class PoolParameters(ItemParameters, template="portable/pool", stores_once=True):
    """Parameters of ``templates/portable/pool.cl.j2``."""

    function: str
    window: Window
    src: Storage


@PORTABLE.lowering("pool_index")
def pool_index_kernel(request: Request) -> Kernel:
    """Return the places of the maxima of windows."""
    attributes = request.attributes(PoolIndex)
    parameters = PoolIndexParameters(window=attributes.window, src=request.input(0))
    return item_kernel(request, parameters, [request.activation("src", 0)], 8 * prod(attributes.window.kernel))


@PORTABLE.lowering("unpool")
def unpool_kernel(request: Request) -> Kernel:
    """Elements put back to the places that their indices name."""
    attributes = request.attributes(Unpool)
    parameters = UnpoolParameters(window=attributes.window, src=request.input(0), indices=request.input(1))
    arguments = request.activation("src", 0), request.activation("indices", 1)
    return item_kernel(request, parameters, arguments, 8 * prod(attributes.window.kernel))


@PORTABLE.lowering("pool", reads_grids=True)
def pool_kernel(request: Request) -> Kernel:
    """Return the maximum or the mean of windows."""
    attributes = request.attributes(Pool)
    parameters = PoolParameters(function=attributes.function, window=attributes.window, src=request.input(0))
    cost = 4 * prod(attributes.window.kernel)
    return item_kernel(request, parameters, [request.activation("src", 0)], cost)
