"""Kernels of sums of rows that go to the same place."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.target import vector_type


@dataclass(frozen=True, kw_only=True)
class ScatterParameters(ItemParameters, template="movement/scatter"):
    """Parameters of ``templates/movement/scatter.cl.j2``."""

    count: int
    src: Storage
    places: Argument


@dataclass(frozen=True, kw_only=True)
class ScatterColumnsParameters(ScatterParameters, template="movement/scatter_columns"):
    """Parameters of ``templates/movement/scatter_columns.cl.j2``."""


@PORTABLE.lowering("scatter")
def scatter(request: Request) -> Kernel:
    """On GPUs a work-item adds up what goes to its vec4 of the output, on CPUs all that goes to its columns."""
    source, output, count = request.input(0), request.output, request.shape(1).channels
    places = request.operand("places", 1)
    arguments = [request.activation("src", 0), places]
    keeps_sums = output.type == source.vector and not output.linear and vector_type(output.type) == output.type
    if request.target.family == "cpu" and keeps_sums:
        cost = 4 * (count + output.batch)
        columns = ScatterColumnsParameters(count=count, src=source, places=places)
        return item_kernel(request, columns, arguments, cost, items=output.slices, value_type=source.vector)
    parameters = ScatterParameters(count=count, src=source, places=places)
    return item_kernel(request, parameters, arguments, 2 * count, value_type=source.vector)
