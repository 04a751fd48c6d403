"""Kernels that write elements to computed places: rows that join others, and new elements for a part of a state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.access import Coordinate, coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import tile_count
from tflgpu.ops.movement.indexing import Gather, Lookup
from tflgpu.ops.movement.scatter import Joining, Scatter
from tflgpu.target import ElementType, vector_type

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


@dataclass(frozen=True)
class Index:
    """An element of a tensor of integers, kept between 0 and ``limit``. element: its number in PHWC4."""

    table: str
    type: ElementType
    element: int
    limit: int


@dataclass(frozen=True)
class TargetAxis:
    """One axis of the output but the last: the new elements' own coordinate, shifted. stride: in vec4s."""

    follows: Coordinate
    start: int
    indices: tuple[Index, ...]
    stride: int


@dataclass(frozen=True, kw_only=True)
class OverwriteParameters(ItemParameters, template="movement/overwrite"):
    """Parameters of ``templates/movement/overwrite.cl.j2``."""

    axes: Sequence[TargetAxis]
    src: Geometry
    source: Argument


@PORTABLE.lowering("overwrite")
def overwrite_kernel(request: Request) -> Kernel:
    """Return a work-item moves a vec4. The node's positions say where output elements come from, the kernel where
    they go."""
    attributes, source = request.attributes(Gather), request.shape(0)
    arguments = [request.operand(f"input{i}", i) for i in range(len(request.node.inputs))]

    def index(lookup: Lookup) -> Index:
        table, argument = request.shape(lookup.input), arguments[lookup.input]
        assert lookup.limit is not None
        return Index(argument.name, argument.type, _element(table, [m.start for m in lookup.places]), lookup.limit)

    strides = request.output.geometry.axis_strides
    axes = [
        TargetAxis(place, -position.start, tuple(index(t) for t in position.terms if isinstance(t, Lookup)), stride)
        for place, position, stride in zip(coordinates(source.shape), attributes.positions, strides, strict=False)
    ]
    parameters = OverwriteParameters(axes=axes, src=source, source=arguments[0])
    value_type = arguments[0].vector
    return item_kernel(request, parameters, arguments, 30, items=source.vec4s, value_type=value_type)


def _element(table: Geometry, place: list[int]) -> int:
    """Return the number of an element in PHWC4."""
    *leading, channel = place or [0]
    vec4 = sum(at * stride for at, stride in zip(leading, table.axis_strides, strict=True))
    return LANES * (vec4 + channel // LANES * table.plane) + channel % LANES
