"""Which of its inputs a kernel may write its result over, and states that are so written in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tflgpu.graph.ir import Graph, State, TensorId
from tflgpu.plan.plan import PlannedKernel


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
