"""Where every activation of a plan lives: which tensors have the same memory, and the arena's offsets.

The arena is one buffer, or several parts of equal size where a device has no buffers as large; no tensor is in two
parts.

Its algorithm is "Greedy by Size for Offset Calculation" of Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference" (2020), arXiv:2001.03288.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tflgpu.graph.ir import Graph, State, TensorId, roots
from tflgpu.kernels.kernel import Storage
from tflgpu.passes.device.concatenations import Place, input_places, slice_places
from tflgpu.plan.barrier_intervals import intervals, memory_uses
from tflgpu.plan.plan import Placement, PlannedKernel
from tflgpu.target import Target

ALIGNMENT = 256  # at least the base address alignment of every OpenCL device known

Bytes = NDArray[np.int64]


@dataclass(frozen=True)
class Lifetime:
    """``size`` bytes that must stay from kernel ``first`` to kernel ``last``, both included."""

    size: int
    first: int
    last: int


def aligned(size: int) -> int:
    """Return the least multiple of the alignment that holds a number of bytes.

    Args:
        size: Bytes.
    """
    return -(-size // ALIGNMENT) * ALIGNMENT


def part_bytes(lifetimes: Mapping[int, Lifetime], most: int) -> int:
    """Return the size of one part of an arena, in bytes.

    Args:
        lifetimes: Sizes of the tensors; a tensor must be in one part, so that a part is no smaller than the largest.
        most: The greatest size of a buffer.
    """
    largest = max((aligned(life.size) for life in lifetimes.values()), default=0)
    return max(most // ALIGNMENT * ALIGNMENT, largest, ALIGNMENT)


def place(lifetimes: Mapping[int, Lifetime], part: int) -> tuple[dict[int, int], int]:
    """Place tensors in an arena so that no two that live at the same time overlap, the largest first.

    Args:
        lifetimes: By tensor its size, and the first and the last kernel that use it.
        part: Bytes of a part; no tensor lies in two parts.

    Returns:
        The offset of each tensor, and the size of the arena, in bytes.
    """
    order = sorted(lifetimes.items(), key=lambda item: -item[1].size)
    first, last = (np.array([getattr(life, name) for _, life in order], np.int64) for name in ("first", "last"))
    begins, ends = np.zeros((2, len(order)), np.int64)
    for number, (_, life) in enumerate(order):
        together = np.flatnonzero((first[:number] <= life.last) & (life.first <= last[:number]))
        begins[number] = _lowest_gap(begins[together], ends[together], aligned(life.size), part)
        ends[number] = begins[number] + aligned(life.size)
    return {key: int(begin) for (key, _), begin in zip(order, begins, strict=True)}, int(max(ends, default=0))


def _lowest_gap(begins: Bytes, ends: Bytes, size: int, part: int) -> int:
    """Return the lowest offset at which ``size`` bytes overlap none of these ranges and lie in one part."""
    order = np.argsort(begins)
    free_from = np.maximum.accumulate(np.append(0, ends[order]))
    in_two = free_from // part != (free_from + size - 1) // part
    starts = np.where(in_two, -(-free_from // part) * part, free_from)
    gaps = np.flatnonzero(begins[order] - starts[:-1] >= size)
    return int(starts[gaps[0] if gaps.size else -1])


def lower_bound(lifetimes: Mapping[int, Lifetime]) -> int:
    """Return the largest sum of bytes alive at one kernel: no placement can be smaller.

    Args:
        lifetimes: By tensor its size, and the first and the last kernel that use it.
    """
    changes = np.zeros(2 + max((life.last for life in lifetimes.values()), default=0), np.int64)
    for life in lifetimes.values():
        changes[life.first] += aligned(life.size)
        changes[life.last + 1] -= aligned(life.size)
    return int(np.cumsum(changes).max())


def overwritable(planned: PlannedKernel, root: Mapping[TensorId, TensorId]) -> Iterator[TensorId]:
    """Yield the inputs that a kernel reads only at the element that it is about to write: its result may take their
    memory.

    Such are the epilogue's operands of the output's own shape and what the kernel names itself, such as the primary of
    a map, unless the kernel touches its output before, or reads the same memory in any other way as well.

    Args:
        planned: The kernel.
        root: The tensor whose memory each tensor has.
    """
    if not planned.kernel.parameters.stores_once:
        return
    readers = [a for a in planned.arguments if a.tensor is not None and not a.written]
    elementwise = {s.access.name for op in planned.epilogue for s in op.operands if s.access and s.access.same}
    elementwise |= planned.kernel.parameters.read_where_stored
    for argument in readers:
        assert argument.tensor is not None
        alone = sum(root[argument.tensor] == root[o.tensor] for o in readers if o.tensor is not None) == 1
        if argument.name in elementwise and alone:
            yield argument.tensor


def written_in_place(
    graph: Graph, kernels: Sequence[PlannedKernel], root: Mapping[TensorId, TensorId]
) -> dict[TensorId, TensorId]:
    """Return the states whose next value a kernel may store over the last one.

    Args:
        graph: Has the states.
        kernels: All kernels of the plan.
        root: The tensor whose memory each tensor has.

    Returns:
        The last value by the next one, which has the memory of the last.

    Raises:
        ValueError: A node that only overwrites some elements could not do so.
    """
    found = {s.written: s.read for s in graph.states if _can_overwrite(s, kernels, root)}
    if not all(k.node.output in found for k in kernels if k.node.kind == "overwrite"):
        raise ValueError("a state would lose its elements")
    return found


def _can_overwrite(state: State, kernels: Sequence[PlannedKernel], root: Mapping[TensorId, TensorId]) -> bool:
    """Whether the kernel that computes a state's next value may store it over the last one."""
    written = next((time for time, k in enumerate(kernels) if k.node.output == state.written), None)
    if written is None:  # a view of what a kernel computes
        return False

    def used(k: PlannedKernel) -> set[TensorId]:
        return {root[a.tensor] for a in k.arguments if a.tensor is not None}

    if any(state.read in used(later) for later in kernels[written + 1 :]):
        return False
    return state.read not in used(kernels[written]) or state.read in overwritable(kernels[written], root)


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
