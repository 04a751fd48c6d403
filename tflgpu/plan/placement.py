"""Where every activation of a plan lives: which tensors have the same memory, and the arena's offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tflgpu.graph.ir import Graph, TensorId, roots
from tflgpu.kernels.kernel import Storage
from tflgpu.passes.device.concatenations import Place, input_places
from tflgpu.passes.device.slices import slice_places
from tflgpu.plan.arena import Lifetime, lower_bound, part_bytes, place
from tflgpu.plan.overwriting import overwritable, written_in_place
from tflgpu.plan.plan import Placement, PlannedKernel
from tflgpu.target import Target

Uses = Mapping[TensorId, tuple[int, int]]  # of tensors in the arena: the first and the last kernel that uses each


def placement(
    graph: Graph, kernels: Sequence[PlannedKernel], storage: Mapping[TensorId, Storage], target: Target
) -> Placement:
    """Memory for all activations of kernels that run in this order."""
    root, places = roots(graph), _places(graph, storage)
    shifts = {t: places[r].offset for t, r in root.items() if r in places}
    root = {t: places[r].whole if r in places else r for t, r in root.items()}
    in_place = written_in_place(graph, kernels, root)
    root = {t: in_place.get(r, r) for t, r in root.items()}
    boundary = {root[t] for t in graph.given | graph.wanted}
    uses = _uses(kernels, root, boundary)
    owner = _owners(kernels, root, uses, shifts, storage)
    lifetimes = _lifetimes(uses, owner, storage)
    part = part_bytes(lifetimes, target.limits.allocation_bytes)
    begins, arena_bytes = place(lifetimes, part)
    offsets = {t: begins[owner.get(r, r)] + shifts.get(t, 0) for t, r in root.items() if owner.get(r, r) in begins}
    return Placement(root, shifts, offsets, arena_bytes, part, lower_bound(lifetimes))


def _places(graph: Graph, storage: Mapping[TensorId, Storage]) -> dict[TensorId, Place]:
    """Where tensors lie that are parts of others: inputs of eliminated concatenations, and eliminated slices."""
    root, places = roots(graph), input_places(graph, storage)
    for tensor, own in slice_places(graph, storage).items():  # a slice of a slice comes after it
        whole = places.get(root[own.whole], Place(root[own.whole]))
        places[tensor] = replace(whole, offset=whole.offset + own.offset)
    return places


def _uses(
    kernels: Sequence[PlannedKernel], root: Mapping[TensorId, TensorId], boundary: Collection[TensorId]
) -> dict[TensorId, tuple[int, int]]:
    """boundary: the tensors that have memory outside of the arena."""
    found: dict[TensorId, tuple[int, int]] = {}
    for time, planned in enumerate(kernels):
        used = (root[argument.tensor] for argument in planned.arguments if argument.tensor is not None)
        for tensor in used:
            if tensor not in boundary:
                first, _ = found.get(tensor, (time, time))
                found[tensor] = first, time
    return found


def _owners(
    kernels: Sequence[PlannedKernel],
    root: Mapping[TensorId, TensorId],
    uses: Uses,
    shifts: Mapping[TensorId, int],
    storage: Mapping[TensorId, Storage],
) -> dict[TensorId, TensorId]:
    """For each tensor that a kernel writes over its input: the first one that had this memory."""
    owner: dict[TensorId, TensorId] = {}
    for time, planned in enumerate(kernels):
        out = planned.node.output
        source = next(overwritable(planned, root), None)
        if source is None or out not in uses or source in shifts or out in shifts:
            continue
        _, last = uses.get(root[source], (time, None))
        if last == time and _is_alike(storage[source], storage[out]):
            owner[out] = owner.get(root[source], root[source])
    return owner


def _is_alike(source: Storage, result: Storage) -> bool:
    """Whether each element of a result lies where that of a source of the same shape lies."""
    return result == replace(source, geometry=result.geometry, grid=result.grid)


def _lifetimes(
    uses: Uses, owner: Mapping[TensorId, TensorId], storage: Mapping[TensorId, Storage]
) -> dict[TensorId, Lifetime]:
    """The lifetimes of memory, by the tensor that has it first."""
    lifetimes: dict[TensorId, Lifetime] = {}
    for tensor, (first, last) in uses.items():
        memory, size = owner.get(tensor, tensor), storage[tensor].bytes
        before = lifetimes.get(memory, Lifetime(size, first, last))
        lifetimes[memory] = Lifetime(max(size, before.size), min(first, before.first), max(last, before.last))
    return lifetimes
