"""Kernels of items: equal pieces of work, such as a vec4 of the output, that depend on nothing of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tflgpu.graph.layout import Size
from tflgpu.kernels.kernel import Argument, Kernel, Parameters
from tflgpu.kernels.request import Request
from tflgpu.kernels.tiling import items_per_tile, tile_count
from tflgpu.target import VectorType


@dataclass(frozen=True, kw_only=True)
class ItemParameters(Parameters):
    """Parameters of a template that goes through its items. per_tile: items of a work-group, chosen by
    :func:`item_kernel`."""

    per_tile: Size = 0


def item_kernel(
    request: Request,
    parameters: ItemParameters,
    arguments: Sequence[Argument],
    cost: int,
    *,
    items: int | None = None,
    macs: int = 0,
    value_type: VectorType = "float",
) -> Kernel:
    """Return a kernel whose template goes through its items by ``templates/access/items.cl.j2``.

    Args:
        request: The node.
        parameters: The template's; the items of a tile are filled in.
        arguments: The kernel's inputs.
        cost: Rough floating-point operations of an item.
        items: How many there are; None for the vec4s of the output.
        macs: Multiplications of the kernel, for reports.
        value_type: The type of the kernel's own result.
    """
    count = request.output.geometry.vec4s if items is None else items
    per_tile = items_per_tile(count, request.target, cost)
    return Kernel(
        replace(parameters, per_tile=per_tile),
        tuple(arguments),
        tiles=tile_count(count, per_tile),
        local_size=request.target.local_size,
        macs=macs,
        value_type=value_type,
    )
