"""Cut a subgraph into pieces for the device and for the CPU, as few as the dependencies allow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tflgpu.tflite import Operator, Subgraph

# Values that exist only inside one interpreter: handles of variables, strings, nested types.
BOUND_TYPES = frozenset(("resource", "variant", "string"))


@dataclass(frozen=True)
class Piece:
    """Operators that run together, by index in file order, and the tensors that they take from and give to others."""

    on_device: bool
    operators: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def partition(
    subgraph: Subgraph, capable: Collection[int], inputs: Sequence[int], outputs: Sequence[int]
) -> tuple[Piece, ...]:
    """Pieces in the order in which they run, device and CPU in turn.

    capable: the operators that can run on the device. inputs, outputs: the tensors of the caller.
    Taking everything that is ready before changing sides gives the fewest changes for a given first side; both are
    tried.
    Operators of nothing but constants belong to every piece that wants their results, so that no constant crosses.
    """
    if _must_stay_together(subgraph, capable):
        capable = ()
    constant = _constant_operators(subgraph, capable, outputs)
    orders = [_alternate(subgraph, capable, constant, inputs, first) for first in (True, False)]
    groups = min(orders, key=lambda order: (sum(on_device for on_device, _ in order), len(order)))
    return tuple(_piece(subgraph, groups, i, constant, inputs, outputs) for i in range(len(groups)))


def operators_on_cpu(pieces: Sequence[Piece]) -> frozenset[int]:
    """The operators that run on the CPU alone; constants may be computed on both sides."""
    device, cpu = ({i for p in pieces if p.on_device == side for i in p.operators} for side in (True, False))
    return frozenset(cpu - device)


def crossing_bytes(pieces: Sequence[Piece], subgraph: Subgraph) -> int:
    """Bytes of the tensors that one side writes and the other reads, once each."""
    taken, given = (
        {side: {t for p in pieces if p.on_device == side for t in getattr(p, name)} for side in (True, False)}
        for name in ("inputs", "outputs")
    )
    crossing = (given[True] & taken[False]) | (given[False] & taken[True])
    return sum(subgraph.tensors[t].bytes for t in crossing)


def _must_stay_together(subgraph: Subgraph, capable: Collection[int]) -> bool:
    """Whether the CPU's part uses state, which all of its operators have to share in one interpreter."""
    return any(
        subgraph.tensors[t].dtype in BOUND_TYPES
        for o in subgraph.operators
        if o.index not in capable
        for t in (*o.inputs, *o.outputs)
        if t >= 0
    )


def _constant_operators(subgraph: Subgraph, capable: Collection[int], outputs: Sequence[int]) -> dict[int, Operator]:
    """Output tensor -> operator, for operators of constants alone that both sides can compute for themselves."""
    known = {t.index for t in subgraph.tensors if t.data is not None}
    found: dict[int, Operator] = {}
    for operator in subgraph.operators:
        shared = operator.index in capable and not any(t in outputs for t in operator.outputs)
        if shared and operator.inputs and all(t < 0 or t in known for t in operator.inputs):
            known.update(operator.outputs)
            found |= dict.fromkeys(operator.outputs, operator)
    return found


def _alternate(
    subgraph: Subgraph, capable: Collection[int], constant: dict[int, Operator], inputs: Sequence[int], side: bool
) -> list[tuple[bool, list[Operator]]]:
    free = {o.index for o in constant.values()}
    waiting = [o for o in subgraph.operators if o.index not in free]
    ready = {-1, *inputs, *constant, *(t.index for t in subgraph.tensors if t.data is not None or t.is_variable)}
    written = {t for o in waiting for t in o.outputs}
    groups: list[tuple[bool, list[Operator]]] = []
    while waiting:
        taken, rest = [], []
        for operator in waiting:
            known = all(t in ready or t not in written for t in operator.inputs)
            if known and (operator.index in capable) == side:
                taken.append(operator)
                ready.update(operator.outputs)
            else:
                rest.append(operator)
        if taken:
            groups.append((side, taken))
        waiting, side = rest, not side
    return groups


def _piece(
    subgraph: Subgraph,
    groups: Sequence[tuple[bool, list[Operator]]],
    number: int,
    constant: dict[int, Operator],
    inputs: Sequence[int],
    outputs: Sequence[int],
) -> Piece:
    on_device, own = groups[number]
    operators = {o.index: o for o in own}
    pending = [t for o in own for t in o.inputs]
    while pending:
        source = constant.get(pending.pop())
        if source is not None and source.index not in operators:
            operators[source.index] = source
            pending += source.inputs
    written = {t for o in operators.values() for t in o.outputs}
    read = {t for o in operators.values() for t in o.inputs if t >= 0}
    elsewhere = {t for i, (_, group) in enumerate(groups) if i != number for o in group for t in o.inputs}
    fixed = {t.index for t in subgraph.tensors if t.data is not None or t.is_variable}
    return Piece(
        on_device,
        tuple(sorted(operators)),
        tuple(sorted(t for t in read - written - fixed if t in inputs or t not in constant)),
        tuple(sorted(t for t in written if (t in elsewhere and t not in constant) or t in outputs)),
    )
