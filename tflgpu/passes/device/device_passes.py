"""The passes for a device, in the order in which they run; architectures register some of them.

Most of them replace nodes by others that the device computes faster. They run after the portable passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tflgpu.errors import internal_faults
from tflgpu.kernels.architecture import PORTABLE, Architecture, Phase, Rewrite, rewrites
from tflgpu.kernels.rewriting import Planning
from tflgpu.passes.device.concatenations import concatenate_in_place, slice_in_place
from tflgpu.passes.device.grids import keep_whole_numbers, store_on_grids
from tflgpu.passes.device.states import overwrite_states, shorten_states
from tflgpu.passes.device.storage import assign_storage, convert_layouts, store_rows
from tflgpu.passes.fuse import inline_operands
from tflgpu.target import Target


@dataclass(frozen=True)
class DevicePass:
    """A rewriting for the devices of an architecture.

    fuses: whether tensors are left out that no kernel stores any more.
    """

    name: str
    run: Rewrite
    architecture: Architecture = PORTABLE
    fuses: bool = False


def _inline_operands(planning: Planning) -> Planning:
    """After fusions, some of which look for a product that would be part of another map node."""
    linear = {tensor for tensor, storage in planning.storage.items() if storage.linear}
    return replace(planning, graph=inline_operands(planning.graph, linear))


# A phase stands for what architectures register in it. Fusions come first: they know the kinds of nodes that the
# portable passes leave. Storage is assigned before, as costs depend on it. A sum is divided after them,
# whatever node computes it. What is read through a movement is known when no other movement is in place.
ORDER: Sequence[DevicePass | Phase] = (
    DevicePass("convert_layouts", convert_layouts),
    DevicePass("shorten_states", shorten_states),
    DevicePass("assign_storage", assign_storage),
    DevicePass("store_on_grids", store_on_grids),
    "fuse",
    DevicePass("inline_operands", _inline_operands, fuses=True),
    DevicePass("keep_whole_numbers", keep_whole_numbers),
    "replace",
    "divide",
    "share",
    DevicePass("store_rows", store_rows),
    DevicePass("slice_in_place", slice_in_place),
    DevicePass("concatenate_in_place", concatenate_in_place),
    "read",
    DevicePass("overwrite_states", overwrite_states),
)


def passes_for(target: Target | None = None) -> dict[str, DevicePass]:
    """Return the passes for a device, in order, by the names that `tflgpu show --after` takes.

    Args:
        target: The device; None for the passes of all devices.
    """
    passes = list[DevicePass]()
    for each in ORDER:
        passes += [each] if isinstance(each, DevicePass) else _registered(each, target)
    return {each.name: each for each in passes}


def _registered(phase: Phase, target: Target | None) -> Iterator[DevicePass]:
    for each in rewrites(phase, target):
        yield DevicePass(each.name, each.run, each.architecture, each.fuses)


def planned(planning: Planning, *, fuse: bool = True) -> Planning:
    """Return the planning after every pass.

    Args:
        planning: An optimized graph, and the device.
        fuse: Whether to run passes that leave tensors out.
    """
    *_, (_, result) = planning_steps(planning, fuse=fuse)
    return result


def planning_steps(planning: Planning, *, fuse: bool = True) -> Iterator[tuple[str, Planning]]:
    """Yield the planning after each pass that concerns its device, by the pass's name. It is verified after each.

    Args:
        planning: An optimized graph, and the device.
        fuse: Whether to run passes that leave tensors out.
    """
    for name, each in passes_for(planning.target).items():
        if fuse or not each.fuses:
            with internal_faults(f"running the pass {name}"):
                planning = each.run(planning)
                planning.verify()
            yield name, planning
