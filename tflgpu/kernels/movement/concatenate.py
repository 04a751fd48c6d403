"""The kernel of a concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tflgpu.graph.layout import LANES
from tflgpu.kernels.access import Access, Coordinate, access, coordinates
from tflgpu.kernels.architecture import PORTABLE
from tflgpu.kernels.items import ItemParameters, item_kernel
from tflgpu.kernels.kernel import Kernel
from tflgpu.kernels.request import Request
from tflgpu.ops.movement.shaping import Concatenate


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
