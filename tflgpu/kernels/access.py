"""Where a kernel reads an operand for an element of its output: strides in vec4s along each axis.

A kernel knows the place as image ``b``, slice ``s`` and pixel ``p = y * width + x`` of its output. Logical axes before
the height are folded into ``b``, so their coordinates are divided out of it again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from tflgpu.graph.ir import extends_to
from tflgpu.graph.layout import LANES, Geometry, Shape, Size, geometry_of
from tflgpu.kernels.kernel import Argument, Elements, Grid
from tflgpu.ops.movement.shaping import Factor, Strided
from tflgpu.target import ElementType


@dataclass(frozen=True)
class Coordinate:
    """One logical coordinate of the output element, as kernels compute it.

    kind: ``b``, ``y``, ``x``, ``c``, or ``0`` for none. A batch coordinate is ``b / divisor % extent``.
    """

    kind: str
    divisor: int = 1
    extent: int = 1

    def expression(self, width: int) -> str:
        """Return the coordinate as an expression in C.

        Args:
            width: Pixels of a row of the output.
        """
        whole = {"b": f"(b / {self.divisor} % {self.extent})", "y": f"(p / {width})", "x": f"(p % {width})"}
        return whole.get(self.kind, self.kind)


def coordinates(shape: Shape) -> tuple[Coordinate, ...]:
    """Return the coordinate of every logical axis of an output of ``shape``."""
    g = geometry_of(shape)
    leading = tuple(Coordinate("b", prod(g.batch_axes[i + 1 :]), extent) for i, extent in enumerate(g.batch_axes))
    spatial = (Coordinate("y"), Coordinate("x"))[max(0, 4 - len(shape)) :] if len(shape) >= 3 else ()
    return leading + spatial + ((Coordinate("c"),) if shape else ())


@dataclass(frozen=True)
class BatchTerm:
    """``index / divisor % extent * stride`` vec4s, by the index of an image or of a head of attention."""

    divisor: int
    extent: int
    stride: int


@dataclass(frozen=True)
class Digit:
    """``index / divisor % extent * stride`` units; without an extent there is nothing above it."""

    divisor: int
    extent: int | None
    stride: int


def digits_of(factors: Sequence[Factor], unit: int) -> tuple[Digit, ...]:
    """Return the digits of a unit's index, the most significant first.

    Args:
        factors: Those of a view; a unit's elements are neighbours of the last one.
        unit: Elements of a unit.
    """
    digits, divisor = list[Digit](), 1
    for i, f in reversed(list(enumerate(factors))):
        extent, stride = (f.extent // unit, f.stride) if i == len(factors) - 1 else (f.extent, f.stride // unit)
        digits.insert(0, Digit(divisor, None if i == 0 else extent, stride))
        divisor *= extent
    return tuple(digits)


@dataclass(frozen=True)
class AccessView:
    """A movement of whole vec4s, by which an operand becomes a tensor of the output's shape.

    start, digits: the vec4 of the operand, in row-major order, for the one of the output. slices, plane: the operand's.
    """

    start: Size
    digits: tuple[Digit, ...]
    slices: Size
    plane: Size


@dataclass(frozen=True)
class Access(Elements):
    """Where operand ``name`` is read for an output element; a stride of 0 broadcasts along that axis.

    same: the operand has the output's own geometry. splat: it has one channel, for all of the output's.
    linear: it lies in the host's row-major order (of the output's shape). slices: how many it has, if it differs from
    the output in these alone; what lies after them is zero. view: the movement through which it is read.
    """

    name: str
    type: ElementType
    channels: Size
    same: bool
    splat: bool
    linear: bool
    slice: Size
    row: Size
    pixel: Size
    batch: tuple[BatchTerm, ...]
    slices: Size = 0
    grid: Grid | None = None
    view: AccessView | None = None

    @property
    def uniform(self) -> bool:
        """Whether all pixels of a plane read the same."""
        return not self.same and not self.linear and not self.row and not self.pixel and self.view is None


def access(
    name: str,
    elements: Elements,
    shape: Shape,
    output: Shape,
    *,
    linear: bool = False,
    fixed: Collection[int] | None = None,
) -> Access:
    """Return the access to a tensor from kernels that write an output; axes are aligned at the last one.

    Args:
        name: The tensor's name in C.
        elements: Its storage or its argument.
        shape: The tensor's.
        output: The output's shape.
        linear: Whether the tensor is in row-major order.
        fixed: The axes along which the operand does not follow the output. None for those of size 1, as in numpy's
            broadcasting; a reduction names the reduced ones, a concatenation none.
    """
    source, target = geometry_of(shape), geometry_of(output)
    rank = len(output)
    padded = (1,) * (rank - len(shape)) + shape
    own = (0,) * (rank - len(shape)) + source.axis_strides
    still = {i for i in range(rank) if padded[i] == 1} if fixed is None else set(fixed)
    strides = [0 if i in still else own[i] for i in range(rank - 1)]
    batch: list[BatchTerm] = []
    row = pixel = 0
    for stride, place in zip(strides, coordinates(output)[:-1], strict=True):
        if place.kind == "y":
            row = stride
        elif place.kind == "x":
            pixel = stride
        elif stride:
            batch.append(BatchTerm(place.divisor, place.extent, stride))
    return Access(
        name,
        elements.type,
        source.channels,
        same=shape == output and not linear and not fixed,
        splat=source.channels == 1 and target.channels > 1,
        linear=linear,
        slice=0 if rank - 1 in still else source.plane,
        row=row,
        pixel=pixel,
        batch=tuple(batch),
        slices=source.slices if fixed is None and extends_to(shape, output) else 0,
        grid=elements.grid,
    )


def moved_access(name: str, elements: Elements, source: Geometry, strided: Strided, output: Shape) -> Access:
    """Return the access through a movement that keeps vec4s together; see :func:`keeps_vec4s`.

    Args:
        name: The tensor's name in C.
        elements: Its storage or its argument.
        source: The tensor's geometry.
        strided: The movement.
        output: The shape of the output, and of the moved tensor.
    """
    digits = digits_of(strided.factors, LANES)
    view = AccessView(strided.start // LANES, digits, source.slices, source.plane)
    return replace(access(name, elements, output, output), same=False, view=view)


def keeps_vec4s(strided: Strided, source: Geometry, output: Geometry) -> bool:
    """Whether a movement takes each vec4 of PHWC4 from a vec4.

    Args:
        strided: The movement.
        source: The tensor's geometry.
        output: The moved tensor's geometry.
    """
    return source.channels % LANES == output.channels % LANES == 0 and keeps_units(strided, LANES)


def keeps_units(strided: Strided, unit: int) -> bool:
    """Whether elements stay in units of neighbours.

    Args:
        strided: The movement.
        unit: Elements of a unit.
    """
    *outer, last = strided.factors or (Factor(1, 1),)
    together = last.stride == 1 and last.extent % unit == 0
    return unit == 1 or (together and all(n % unit == 0 for n in (strided.start, *(f.stride for f in outer))))


def reach(argument: Argument, geometry: Geometry, output: Shape, fixed: set[int]) -> Access:
    """Return the access that follows the output along all axes but some; batch axes of size 1 broadcast.

    Args:
        argument: The tensor's.
        geometry: The tensor's.
        output: The output's shape.
        fixed: The axes along which the operand does not follow the output.
    """
    padded = (1,) * (len(output) - len(geometry.shape)) + geometry.shape
    still = fixed | {i for i in range(len(output) - 2) if padded[i] == 1}
    return access(argument.name, argument, geometry.shape, output, fixed=still)
