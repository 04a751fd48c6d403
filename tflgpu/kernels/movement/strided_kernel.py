"""Kernels of reshapes and movements along strides, of concatenations, and of elementwise functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tflgpu.graph.layout import LANES, Size
from tflgpu.kernels.access import Access, Coordinate, Digit, access, coordinates, digits_of, keeps_units, keeps_vec4s
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Argument, Kernel, Storage
from tflgpu.kernels.movement.gather_kernel import copy_kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.movement.shaping import Concatenate, Strided, whole
from tflgpu.ops.sixteen_bits.lookup import Lookup


@dataclass(frozen=True, kw_only=True)
class StridedParameters(ItemParameters, template="movement/strided", stores_once=True):
    """Parameters of ``templates/movement/strided.cl.j2``."""

    unit: str
    start: Size
    digits: Sequence[Digit]
    src: Storage


@PORTABLE.lowering("reshape", reads_grids=True)
@PORTABLE.lowering("strided", reads_grids=True)
def strided_kernel(request: Request) -> Kernel:
    """Return a reshape, or a movement along strides, in units that stay together."""
    source, strided = request.input(0), strided_of(request)
    name, unit = moved_unit(strided, source, request.output)
    digits = digits_of(strided.factors, unit)
    return copy_kernel(request, StridedParameters(unit=name, start=strided.start // unit, digits=digits, src=source))


def strided_of(request: Request) -> Strided:
    """Return the movement of a node of either kind."""
    attributes = request.node.attributes
    return attributes if isinstance(attributes, Strided) else whole(prod(request.output.geometry.shape))


def moved_unit(strided: Strided, source: Storage, output: Storage) -> tuple[str, int]:
    """Return what stays together: its name, and its elements."""
    channels = output.geometry.channels
    if source.channels == channels and not (source.linear and channels % LANES) and keeps_units(strided, channels):
        return "pixel", channels
    if keeps_vec4s(strided, source.geometry, output.geometry):
        return "vec4", LANES
    return "element", 1


@dataclass(frozen=True)
class ConcatenatedInput:
    """One input of a concatenation: ``size`` coordinates from ``start`` on, which is ``shift`` vec4s in its strides."""

    access: Access
    start: int
    size: int
    shift: int


@dataclass(frozen=True, kw_only=True)
class ConcatenateParameters(ItemParameters, template="movement/concatenate", stores_once=True):
    """Parameters of ``templates/movement/concatenate.cl.j2``."""

    parts: Sequence[ConcatenatedInput]
    axis: Coordinate
    whole_vec4s: bool


@PORTABLE.lowering("concatenate", reads_grids=True)
def concatenate_kernel(request: Request) -> Kernel:
    """Return a concatenation whose work-items each move a vec4 of the output."""
    attributes, node, output = request.attributes(Concatenate), request.node, request.output.geometry
    axis, rank = attributes.axis, len(output.shape)
    parts, arguments, start = [], [], 0
    for i in range(len(node.inputs) - len(node.epilogue_inputs)):
        argument, g = request.operand(f"part{i}", i), request.shape(i)
        reach = access(argument.name, argument, g.shape, output.shape, fixed=())
        stride = g.axis_strides[axis] if axis < rank - 1 else g.plane
        shift = start * stride if axis < rank - 1 else start // LANES * stride
        parts.append(ConcatenatedInput(reach, start, g.shape[axis], shift))
        arguments.append(argument)
        start += g.shape[axis]
    parameters = ConcatenateParameters(
        parts=parts,
        axis=coordinates(output.shape)[axis],
        whole_vec4s=all(p.start % LANES == 0 for p in parts),
    )
    cost, value_type = 20 + 4 * len(parts), parts[0].access.vector
    return item_kernel(request, parameters, arguments, cost, value_type=value_type)


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


@dataclass(frozen=True, kw_only=True)
class LookupParameters(ItemParameters, template="movement/lookup", stores_once=True):
    """Parameters of ``templates/movement/lookup.cl.j2``."""

    src: Argument
    scale: float
    least: float
    dirty: bool = True


@PORTABLE.lowering("lookup", reads_grids=True)
def lookup_kernel(request: Request) -> Kernel:
    """Return a work-item computes a vec4 of the output."""
    attributes, source = request.attributes(Lookup), request.operand("src", 0)
    parameters = LookupParameters(src=source, scale=attributes.scale, least=attributes.least)
    arguments = source, request.operand("table", 1)
    return item_kernel(request, parameters, arguments, 40, value_type="int")
