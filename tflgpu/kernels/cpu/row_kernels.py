"""Kernels for CPUs that go several times through all channels of a pixel: softmax and layer normalization."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tflgpu.graph.layout import LANES
from tflgpu.kernels.cpu import CPU
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.ops.arithmetic.reduction import LayerNorm, Softmax
from tflgpu.target.kernel_numbers import kernel_numbers


@dataclass(frozen=True, kw_only=True)
class RowNumbers:
    """Numbers of softmax.

    Attributes:
        kept_slices: Slices of four pixels whose exponentials are kept: 16 KiB, a third of the smallest first cache.
        exponential: Operations that one is taken to be.
    """

    kept_slices: int
    exponential: int


NUMBERS = kernel_numbers("cpu/rows", RowNumbers)


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
    kept = not attributes.log and request.output.geometry.slices <= NUMBERS.kept_slices
    parameters = SoftmaxVectorsParameters(beta=attributes.beta, log=attributes.log, kept=kept, src=request.input(0))
    return _row_kernel(request, NUMBERS.exponential, parameters)


@CPU.lowering("layer_norm", reads_grids=True)
def layer_norm(request: Request) -> Kernel:
    """Layer normalization of the channels of four pixels at a time."""
    attributes = request.attributes(LayerNorm)
    epsilon, centered = attributes.epsilon, attributes.centered
    parameters = LayerNormVectorsParameters(epsilon=epsilon, centered=centered, src=request.input(0))
    return _row_kernel(request, 6, parameters)
