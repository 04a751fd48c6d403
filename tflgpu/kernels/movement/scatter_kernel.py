"""The kernel of sums of rows that go to the same place."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.request import Request


@dataclass(frozen=True, kw_only=True)
class ScatterParameters(ItemParameters, template="movement/scatter"):
    """Parameters of ``templates/movement/scatter.cl.j2``."""

    count: int
    src: Storage
    places: Argument


@PORTABLE.lowering("scatter")
def scatter(request: Request) -> Kernel:
    """A work-item adds up what goes to its vec4 of the output."""
    source, count = request.input(0), request.shape(1).channels
    places = request.operand("places", 1)
    parameters = ScatterParameters(count=count, src=source, places=places)
    arguments = [request.activation("src", 0), places]
    return item_kernel(request, parameters, arguments, 2 * count, value_type=source.vector)
