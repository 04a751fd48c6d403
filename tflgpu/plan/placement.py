"""Where every activation of a plan lives: which tensors have the same memory, and the arena's offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tflgpu.graph.ir import Graph, TensorId, roots
from tflgpu.kernels.kernel import Storage
from tflgpu.passes.device.concatenations import Place, input_places
from tflgpu.passes.device.slices import slice_places
from tflgpu.plan.arena import Lifetime, lower_bound, part_bytes, place
from tflgpu.plan.barrier_intervals import intervals, memory_uses
from tflgpu.plan.overwriting import overwritable, written_in_place
from tflgpu.plan.plan import Placement, PlannedKernel
from tflgpu.target import Target


class Uses(NamedTuple):
    """The times of a tensor's first and last use, and how many kernels use it at the last one."""

    first: int
    last: int
    kernels: int


def placement(
    graph: Graph,
    kernels: Sequence[PlannedKernel],
    storage: Mapping[TensorId, Storage],
    target: Target,
    *,
    by_levels: bool = False,
) -> tuple[tuple[PlannedKernel, ...], Placement]:
    """Return the order in which kernels run, and memory for all of their activations.

    Args:
        graph: The planned graph.
        kernels: In the order of their nodes.
        storage: Types and sizes of tensors.
        target: Its limits of buffers.
        by_levels: Whether to order kernels by levels of dependency, and give no tensor memory of another one of its
            level,
            so that independent kernels do not wait for each other.
    """
    root, shifts = _aliases(graph, kernels, storage)
    times: Sequence[int] = range(len(kernels))
    if by_levels:
        # These intervals assume that no two tensors of the arena share bytes.
        unsorted = intervals(memory_uses(planned, root, shifts, storage, offsets={}) for planned in kernels)
        order = sorted(times, key=unsorted.__getitem__)
        kernels, times = [kernels[number] for number in order], sorted(unsorted)
    boundary = {root[t] for t in graph.given | graph.wanted}
    uses = _uses(kernels, times, root, boundary)
    owner = _owners(kernels, times, root, shifts, uses, storage)
    lifetimes = _lifetimes(uses, owner, storage)
    part = part_bytes(lifetimes, target.limits.allocation_bytes)
    begins, arena_bytes = place(lifetimes, part)
    offsets = {t: begins[owner.get(r, r)] + shifts.get(t, 0) for t, r in root.items() if owner.get(r, r) in begins}
    return tuple(kernels), Placement(root, shifts, offsets, arena_bytes, part, lower_bound(lifetimes))


def _aliases(
    graph: Graph, kernels: Sequence[PlannedKernel], storage: Mapping[TensorId, Storage]
) -> tuple[dict[TensorId, TensorId], dict[TensorId, int]]:
    """Return the tensor that has the memory of each, and at how many bytes of it those begin that do not begin at 0."""
    root, places = roots(graph), _places(graph, storage)
    shifts = {t: places[r].offset for t, r in root.items() if r in places}
    root = {t: places[r].whole if r in places else r for t, r in root.items()}
    in_place = written_in_place(graph, kernels, root)
    return {t: in_place.get(r, r) for t, r in root.items()}, shifts


def _places(graph: Graph, storage: Mapping[TensorId, Storage]) -> dict[TensorId, Place]:
    """Where tensors lie that are parts of others: inputs of eliminated concatenations, and eliminated slices."""
    root, places = roots(graph), input_places(graph, storage)
    for tensor, own in slice_places(graph, storage).items():  # a slice of a slice comes after it
        whole = places.get(root[own.whole], Place(root[own.whole]))
        places[tensor] = replace(whole, offset=whole.offset + own.offset)
    return places


def _uses(
    kernels: Sequence[PlannedKernel],
    times: Sequence[int],
    root: Mapping[TensorId, TensorId],
    boundary: Collection[TensorId],
) -> dict[TensorId, Uses]:
    """Find the uses. times: of kernels, in their order. boundary: the tensors that have memory outside of the arena."""
    found: dict[TensorId, Uses] = {}
    for time, planned in zip(times, kernels, strict=True):
        for tensor in dict.fromkeys(root[a.tensor] for a in planned.arguments if a.tensor is not None):
            if tensor not in boundary:
                before = found.get(tensor, Uses(time, time, 0))
                found[tensor] = Uses(before.first, time, 1 + (before.kernels if before.last == time else 0))
    return found


def _owners(
    kernels: Sequence[PlannedKernel],
    times: Sequence[int],
    root: Mapping[TensorId, TensorId],
    shifts: Mapping[TensorId, int],
    uses: Mapping[TensorId, Uses],
    storage: Mapping[TensorId, Storage],
) -> dict[TensorId, TensorId]:
    """For each tensor that a kernel writes over its input: the first one that had this memory."""
    owner: dict[TensorId, TensorId] = {}
    for time, planned in zip(times, kernels, strict=True):
        out = planned.node.output
        source = next(overwritable(planned, root), None)
        if source is None or out not in uses or source in shifts or out in shifts:
            continue
        before = uses.get(root[source])
        if before and (before.last, before.kernels) == (time, 1) and _is_alike(storage[source], storage[out]):
            owner[out] = owner.get(root[source], root[source])
    return owner


def _is_alike(source: Storage, result: Storage) -> bool:
    """Whether each element of a result lies where that of a source of the same shape lies."""
    return result == replace(source, geometry=result.geometry, grid=result.grid)


def _lifetimes(
    uses: Mapping[TensorId, Uses], owner: Mapping[TensorId, TensorId], storage: Mapping[TensorId, Storage]
) -> dict[TensorId, Lifetime]:
    """Return the lifetimes of memory, by the tensor that has it first."""
    lifetimes: dict[TensorId, Lifetime] = {}
    for tensor, (first, last, _) in uses.items():
        memory, size = owner.get(tensor, tensor), storage[tensor].bytes
        before = lifetimes.get(memory, Lifetime(size, first, last))
        lifetimes[memory] = Lifetime(max(size, before.size), min(first, before.first), max(last, before.last))
    return lifetimes
