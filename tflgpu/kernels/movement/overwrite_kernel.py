"""The kernel of the ``overwrite`` node: new elements for a part of a state, which keeps all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tflgpu.graph.layout import LANES, Geometry
from tflgpu.kernels.access import Coordinate, coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.movement.indexing import Gather, Lookup
from tflgpu.target import ElementType


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
