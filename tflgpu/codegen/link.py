"""Plan -> Executable: every tensor and constant gets its place, every kernel the name of its function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tflgpu.artifact.cache import content_hash
from tflgpu.artifact.executable import (
    HEADER,
    Binding,
    Constant,
    DeviceBuffer,
    Executable,
    Launch,
    SharedConstants,
    Slot,
    StateBuffer,
)
from tflgpu.errors import internal_faults
from tflgpu.graph.ir import Array, State, TensorId
from tflgpu.graph.layout import LANES, pack
from tflgpu.kernels.kernel import Argument
from tflgpu.plan import Plan
from tflgpu.plan.barrier_intervals import barrier_intervals
from tflgpu.plan.placement import aligned
from tflgpu.plan.plan import traffic
from tflgpu.target import HALF_MAX, HOST_DTYPES, ITEM_BYTES


@internal_faults("giving kernels their memory")
def link(
    plan: Plan,
    functions: Sequence[str],
    output_types: Sequence[str] | None = None,
    shared: Sequence[SharedConstants] = (),
    *,
    separate: bool = False,
) -> Executable:
    """Return the executable of a plan.

    Args:
        plan: The planned kernels and their memory.
        functions: The name of the function of each kernel.
        output_types: Numpy types of the outputs for callers; None for those of the plan's graph.
        shared: Constants that are on the device already; equal ones have their places.
        separate: Whether every tensor and constant gets a buffer of its own instead of a range of a shared one, so that
            a
            checker of memory accesses sees where each ends.
    """
    memory = _Memory(plan, separate, shared)
    launches = tuple(
        Launch(
            planned.key,
            name,
            planned.kernel.tiles,
            planned.kernel.local_size,
            tuple(map(memory.slot, planned.arguments)),
            planned.node.sources,
            planned.kernel.macs,
            traffic(plan, planned),
            interval,
        )
        for planned, name, interval in zip(plan.kernels, functions, barrier_intervals(plan), strict=True)
    )
    inputs = tuple(memory.binding(t, plan.graph[t].dtype) for t in plan.graph.inputs)
    types = output_types or [plan.graph[t].dtype for t in plan.graph.outputs]
    outputs = tuple(map(memory.binding, plan.graph.outputs, types))
    states = tuple(map(memory.state, plan.graph.states))
    parts = tuple(memory.buffers), launches, inputs, outputs, states, memory.results
    return Executable(*parts, constants=tuple(memory.constants))


def state_bindings(plan: Plan, executable: Executable) -> tuple[Binding, ...]:
    """Where the values of a plan's states lie, in PHWC4 and in the element types of the device."""
    states = zip(plan.graph.states, executable.states, strict=True)
    tensors = ((plan.graph[state.read], buffer.buffer) for state, buffer in states)
    return tuple(Binding(buffer, 0, t.shape, plan.storage[t.id].type, t.dtype) for t, buffer in tensors)


# Bytes from which on a constant is worth the time to look for an equal one.
LARGE = 1024


class _Memory:
    """The buffers: one arena, one for constants, one for inputs, one for outputs, and one for each state.

    Where a device allows no buffers as large, there are several for constants and for the arena, and an input or output
    that does not fit has one of its own. A constant or tensor that is larger alone has a larger buffer all the same.

    Inputs share a buffer so that one copy transfers them all, and so do outputs.

    A slot is a buffer and an offset, not a sub-buffer: NVIDIA's driver 580 crashes when overlapping sub-buffers are
    released.
    """

    def __init__(self, plan: Plan, separate: bool, shared: Sequence[SharedConstants]) -> None:
        self.plan, self.separate = plan, separate
        self.buffers: list[DeviceBuffer] = []
        self.constants: list[Constant] = []  # large ones, that later executables may share
        self._places: dict[TensorId, tuple[int, int]] = {}  # buffer, offset in bytes
        self._states = {plan.roots[t] for state in plan.graph.states for t in (state.read, state.written)}
        self._ends = Counter(plan.roots[t] for t in (*plan.graph.inputs, *plan.graph.outputs))
        others = {root for tensor, root in plan.roots.items() if not plan.storage[tensor].linear}
        self._linear = set(plan.roots.values()) - others  # roots that all kernels access in the host's order
        self._constants = self._place_constants(shared)
        parts = () if separate else range(0, plan.arena_bytes, plan.arena_part)
        self._arena = [self._new(DeviceBuffer(min(plan.arena_part, plan.arena_bytes - begin))) for begin in parts]
        if not separate:
            self._share(plan.graph.inputs)
        self.results = self._share(() if separate else plan.graph.outputs, HEADER)

    def slot(self, argument: Argument) -> Slot:
        constant = argument.tensor is None
        buffer, offset = self._constants[id(argument.data)] if constant else self._place(argument.tensor)
        item_bytes = ITEM_BYTES[argument.type]
        return Slot(buffer, offset // item_bytes, item_bytes)

    def binding(self, tensor: TensorId, dtype: str) -> Binding:
        buffer, offset = self._place(tensor)
        shape, element = self.plan.graph[tensor].shape, self.plan.storage[tensor].type
        return Binding(buffer, offset, shape, element, dtype, self._is_exact(tensor))

    def _is_exact(self, tensor: TensorId) -> bool:
        """Whether kernels touch only the tensor's own elements, no other input or output has them, nor the next run.

        In the host's order all kernels access single elements. In PHWC4 a GPU's kernels access 4 elements at once, a
        CPU's up to 16. A view of a tensor in the host's order may be in PHWC4: its last lanes are to be zero.
        """
        root = self.plan.roots[tensor]
        whole_vec4s = self.plan.graph[tensor].size % LANES == 0
        by_element = root in self._linear or (whole_vec4s and self.plan.target.family == "gpu")
        return by_element and root not in self._states and self._ends[root] == 1

    def state(self, state: State) -> StateBuffer:
        buffer, offset = self._place(state.read)
        next_buffer, next_offset = self._place(state.written)
        if (offset, next_offset) != (0, 0):
            raise ValueError("a state is in the arena")
        initial = None if state.initial is None or state.held else self._stored(state)
        return StateBuffer(buffer, None if next_buffer == buffer else next_buffer, initial, state.held)

    def _stored(self, state: State) -> NDArray[np.uint8]:
        """Return the initial contents of a state's buffer."""
        assert state.initial is not None
        storage = self.plan.storage[state.read]
        value = Argument("state", storage.type, data=pack(state.initial))
        block = np.zeros(storage.bytes, np.uint8)
        _store(value, block)
        return block

    def _new(self, buffer: DeviceBuffer) -> int:
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def _share(self, tensors: Sequence[TensorId], begin: int = 0) -> int:
        """Return a new buffer, from byte ``begin`` on, for the ``tensors`` without place or state that it has room for.

        Returns its number.
        """
        number, end = len(self.buffers), begin
        for root in dict.fromkeys(self.plan.roots[t] for t in tensors):
            size = aligned(self.plan.storage[root].bytes)
            fits = end + size <= self.plan.target.limits.allocation_bytes
            if fits and root not in self._places and root not in self._states:
                self._places[root] = (number, end)
                end += size
        return self._new(DeviceBuffer(max(end, 1)))

    def _place(self, tensor: TensorId | None) -> tuple[int, int]:
        """Buffer, and offset in bytes; outside of the arena a new buffer, if it has no place yet."""
        assert tensor is not None
        root = self.plan.roots[tensor]
        if root not in self._places:
            offset = self.plan.offsets.get(root)
            if self._arena and offset is not None:
                self._places[root] = (self._arena[offset // self.plan.arena_part], offset % self.plan.arena_part)
            else:
                self._places[root] = (self._new(DeviceBuffer(self._bytes(root))), 0)
        buffer, offset = self._places[root]
        return buffer, offset + self.plan.shifts.get(tensor, 0)

    def _bytes(self, root: TensorId) -> int:
        """Bytes of a tensor in a buffer of its own."""
        storage, graph = self.plan.storage[root], self.plan.graph
        at_boundary = root in {self.plan.roots[t] for t in (*graph.inputs, *graph.outputs)}
        if at_boundary and self._is_exact(root):
            return graph[root].size * ITEM_BYTES[storage.type]
        return storage.bytes

    def _place_constants(self, shared: Sequence[SharedConstants]) -> dict[int, tuple[int, int]]:
        """Return the place of every constant, by the identity of its array. Large ones that are equal have one
        place."""
        arguments: dict[int, list[Argument]] = {}
        for argument in (a for kernel in self.plan.kernels for a in kernel.arguments if a.data is not None):
            arguments.setdefault(id(argument.data), []).append(argument)
        _join_equal(arguments)
        places = self._place_shared(arguments, shared) if shared else {}
        distinct = [each for data, each in arguments.items() if data not in places]
        most = self.plan.target.limits.allocation_bytes
        for together in [[each] for each in distinct] if self.separate else _shares(distinct, most):
            sizes = [_padded_bytes(each[0]) for each in together]
            ends = np.cumsum(sizes if self.separate else list(map(aligned, sizes)))
            block = np.zeros(ends[-1], np.uint8)
            number = self._new(DeviceBuffer(block.size, block))
            for each, begin in zip(together, (0, *map(int, ends)), strict=False):
                places[_store_for_all(each, block[begin:])] = (number, begin)
                if each[0].bytes >= LARGE:
                    digest = content_hash(block[begin : begin + _padded_bytes(each[0])].data)
                    self.constants.append(Constant(digest, number, begin))
        return places

    def _place_shared(
        self, arguments: Mapping[int, Sequence[Argument]], shared: Sequence[SharedConstants]
    ) -> dict[int, tuple[int, int]]:
        """Return the places of constants that are on the device already."""
        known = {digest: (part, offset) for part, each in enumerate(shared) for digest, offset in each.offsets.items()}
        numbers: dict[int, int] = {}
        places: dict[int, tuple[int, int]] = {}
        for data, (argument, *_) in arguments.items():
            if argument.bytes < LARGE:
                continue
            block = np.zeros(_padded_bytes(argument), np.uint8)
            _store(argument, block)
            if place := known.get(content_hash(block.data)):
                part, offset = place
                if part not in numbers:
                    numbers[part] = self._new(DeviceBuffer(shared[part].bytes, shared=part))
                places[data] = numbers[part], offset
        return places


def _join_equal(arguments: dict[int, list[Argument]]) -> None:
    """Let arguments of large constants that are equal hold one array. Only those of the same size and type are read."""
    alike: dict[tuple[str, int, str], list[int]] = {}
    for data, (argument, *_) in arguments.items():
        if argument.bytes >= LARGE and argument.data is not None:
            alike.setdefault((argument.type, argument.bytes, argument.data.dtype.str), []).append(data)
    for group in alike.values():
        found: dict[str, list[Argument]] = {}
        for data in group if len(group) > 1 else ():
            array = arguments[data][0].data
            assert array is not None
            own = arguments[data]
            first = found.setdefault(content_hash(np.ascontiguousarray(array).data), own)
            if first is not own and first[0].data is not None:
                for argument in arguments.pop(data):
                    argument.move(first[0].data)
                    first.append(argument)


def _shares(constants: Sequence[Sequence[Argument]], most: int) -> list[list[Sequence[Argument]]]:
    """Constants in their order, those of one buffer of at most ``most`` bytes together."""
    shares: list[list[Sequence[Argument]]] = []
    left = 0
    for each in constants:
        size = aligned(_padded_bytes(each[0]))
        if size > left:
            shares.append([])
            left = most
        shares[-1].append(each)
        left -= size
    return shares


def _store_for_all(arguments: Sequence[Argument], block: Array) -> int:
    """Write the constant of several arguments to the beginning of ``block``, and hold it there alone if it is the same.

    Returns the identity of its array.
    """
    first = arguments[0]
    stored = _store(first, block)
    assert first.data is not None
    if stored.dtype == first.data.dtype:
        place = stored.reshape(first.data.shape)
        for argument in arguments:
            argument.move(place)
    return id(first.data)


def _padded_bytes(argument: Argument) -> int:
    """Bytes of a constant, with room for a 16-lane access that begins at its last vec4."""
    return argument.bytes + 3 * LANES * ITEM_BYTES[argument.type]


def _store(argument: Argument, block: Array) -> Array:
    """Write a constant, as the device stores it, to the beginning of ``block``. Returns its elements there."""
    assert argument.data is not None
    data = argument.data.reshape(-1)
    if argument.type == "half":  # finite values stay finite, as on the device
        data = np.where(np.isfinite(data), np.clip(data, -HALF_MAX, HALF_MAX), data)
    stored: Array = block[: argument.bytes].view(HOST_DTYPES[argument.type])
    stored[:] = data
    return stored
