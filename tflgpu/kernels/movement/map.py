"""The kernel of elementwise nodes, which has nothing but an epilogue."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.access import Access, access
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request


@dataclass(frozen=True, kw_only=True)
class MapParameters(ItemParameters, template="movement/map", stores_once=True):
    """Parameters of ``templates/movement/map.cl.j2``."""

    primary: Access
    pixels: int
    dirty: bool

    @property
    def read_where_stored(self) -> frozenset[str]:
        """The primary, if it does not broadcast and lies as the output does."""
        return frozenset({self.primary.name} if self.primary.same else ())


@PORTABLE.lowering("map", reads_grids=True)
def map_kernel(request: Request) -> Kernel:
    """Elementwise functions of a vec4 of the output."""
    g, source = request.output.geometry, request.operand("src", 0)
    if source.tensor is not None and request.input(0).linear:
        primary = access("src", source, request.shape(0).shape, g.shape, linear=True)
    else:
        primary = request.operand_access(source, 0)
    pixels = 4 if request.target.family == "cpu" else 1
    items = g.batch * g.slices * (g.plane // pixels + g.plane % pixels)
    parameters = MapParameters(primary=primary, pixels=pixels, dirty=primary.splat)
    cost = 4 * pixels * (1 + len(request.node.epilogue))
    return item_kernel(request, parameters, [source], cost, items=items, value_type=primary.vector)
