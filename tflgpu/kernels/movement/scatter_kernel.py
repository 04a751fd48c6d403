"""Kernels of rows that join those which go to the same place."""

from __future__ import annotations

from dataclasses import dataclass

from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.movement.scatter import Joining, Scatter
from tflgpu.target import vector_type

# Places of a column that a work-item of a CPU goes through after it has found its first row.
LONGEST = 64


@dataclass(frozen=True, kw_only=True)
class ScatterParameters(ItemParameters, template="movement/scatter", stores_once=True):
    """Parameters of ``templates/movement/scatter.cl.j2``."""

    count: int
    src: Storage
    places: Argument
    joining: Joining
    background: Argument | None
    initial: float | int

    @property
    def read_where_stored(self) -> frozenset[str]:
        """The operand that is at the places at first."""
        return frozenset({self.background.name} if self.background else ())


@dataclass(frozen=True, kw_only=True)
class ScatterInOrderParameters(ScatterParameters, template="movement/scatter_in_order", stores_once=True):
    """Parameters of ``templates/movement/scatter_in_order.cl.j2``."""

    order: Argument
    length: int


@dataclass(frozen=True, kw_only=True)
class ScatterColumnsParameters(ItemParameters, template="movement/scatter_columns"):
    """Parameters of ``templates/movement/scatter_columns.cl.j2``."""

    count: int
    src: Storage
    places: Argument


@PORTABLE.lowering("scatter")
def scatter(request: Request) -> Kernel:
    """Return a work-item joins what goes to its vec4 of the output; on CPUs what goes to some of a column, or sums of
    all."""
    source, output, count = request.input(0), request.output, request.shape(1).channels
    attributes, target = request.attributes(Scatter), request.target
    places = request.operand("places", 1)
    arguments = [request.activation("src", 0), places]
    keeps_sums = output.type == source.vector and not output.linear and vector_type(output.type) == output.type
    if target.family == "cpu" and keeps_sums and attributes == Scatter("add", in_order=False):
        cost = 4 * (count + output.batch)
        columns = ScatterColumnsParameters(count=count, src=source, places=places)
        return item_kernel(request, columns, arguments, cost, items=output.slices, value_type=source.vector)
    if attributes.in_order:
        arguments.append(request.operand("order", 2))
    background = None
    if attributes.background is not None:
        background = request.operand("background", attributes.background)
        arguments.append(background)
    parameters = ScatterParameters(
        count=count,
        src=source,
        places=places,
        joining=attributes.joining,
        background=background,
        initial=attributes.initial,
    )
    if not attributes.in_order:
        return item_kernel(request, parameters, arguments, 2 * count, value_type=source.vector)
    shares = 4 * target.compute_units if target.family == "cpu" else output.batch
    length = min(LONGEST, tile_count(output.batch, shares))
    cost = 4 * (count.bit_length() + length + tile_count(length * count, output.batch))
    ordered = ScatterInOrderParameters(**vars(parameters), order=arguments[2], length=length)
    items = output.slices * tile_count(output.batch, length)
    return item_kernel(request, ordered, arguments, cost, items=items, value_type=source.vector)
