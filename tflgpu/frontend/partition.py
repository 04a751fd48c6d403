"""Cut a subgraph into pieces for the device and for the CPU, as few as the dependencies allow."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tflgpu.errors import UnsupportedError
from tflgpu.model.model import Operator, Subgraph, VariableUse

# Values that exist only inside one interpreter: handles of variables, strings, nested types.
BOUND_TYPES = frozenset(("resource", "variant", "string"))


# Each piece has a program or an interpreter of its own, and tensors cross between two of them.
MOST_PARTITIONS = 64


@dataclass(frozen=True)
class Partition:
    """Operators that run together, by index in file order, and the tensors that they take from and give to others.

    held: the resource variables whose values stay on the device between runs, which are no inputs and outputs.
    """

    on_device: bool
    operators: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    held: tuple[VariableUse, ...] = ()


def partition(
    subgraph: Subgraph,
    capable: Collection[int],
    inputs: Sequence[int],
    outputs: Sequence[int],
    known: Collection[int] = (),
    calls: Collection[int] = (),
) -> tuple[Partition, ...]:
    """Return pieces in the order in which they run: all that is ready for the device, then for the CPU, and so on.

    Taking everything that is ready before changing sides gives the fewest changes for a given first side; both are
    tried.
    Operators of nothing but constants belong to every piece that wants their results, so that no constant crosses.
    Operators that share a value which cannot leave its place, such as a variable, run in one piece: on the CPU, if one
    of them has to.

    Args:
        subgraph: The operators.
        capable: Those that can run on the device.
        inputs: Tensors that the caller gives.
        outputs: Tensors that the caller wants.
        known: Tensors whose values are known beforehand, so that no piece for the device has to be given them.
        calls: Operators for the device that are pieces of their own.

    Raises:
        UnsupportedError: There would be more pieces than :data:`MOST_PARTITIONS`.
    """
    units = _units(subgraph)
    units_for_device = (
        u for u in units if all(o.index in capable and (len(u) == 1 or o.index not in calls) for o in u)
    )
    capable = {o.index for unit in units_for_device for o in unit}
    given = {t for i in calls for t in subgraph.operators[i].inputs if t not in known}
    constant = _constant_operators(subgraph, capable - set(calls), {*outputs, *given})
    orders = [
        _alternate(subgraph, units, capable, constant, inputs, capable.intersection(calls), first)
        for first in (True, False)
    ]
    groups = min(orders, key=lambda order: (sum(on_device for on_device, _ in order), len(order)))
    if len(groups) > MOST_PARTITIONS:
        raise UnsupportedError(
            (
                f"it would be cut into more than {MOST_PARTITIONS} pieces, for the device and for the CPU in turn; "
                "Options.cpu_part.operators leaves more operators to the CPU, so that there are fewer",
            )
        )
    partitions = [
        _partition_of(subgraph, groups, i, constant, inputs, outputs, known, calls) for i in range(len(groups))
    ]
    return _with_constant_outputs(partitions, {*outputs} - {*inputs}, calls)


def holding_variables(
    partitions: Sequence[Partition],
    variables: Sequence[VariableUse],
    outputs: Collection[int],
    calls: Collection[int],
) -> tuple[Partition, ...]:
    """Return the pieces, those for the device with the variables that no other piece needs.

    The values of all other variables are inputs and outputs of pieces.

    Args:
        partitions: The pieces.
        variables: All variables of the entry point.
        outputs: Tensors that the caller wants.
        calls: Operators for the device that are pieces of their own.
    """
    found = list(partitions)
    for use in variables:
        ends = [t for t in (use.before, use.after) if t is not None]
        elsewhere = {*outputs, *(t for other in variables if other is not use for t in (other.before, other.after))}
        places = [n for n, p in enumerate(found) if not {*ends}.isdisjoint((*p.inputs, *p.outputs))]
        if len(places) != 1 or not elsewhere.isdisjoint(ends) or -1 in use.form.signature:
            continue
        piece = found[places[0]]
        is_call = piece.operators[0] in calls
        if piece.on_device and not is_call and (use.after is None or use.after in piece.outputs):
            inputs, given = (tuple(t for t in side if t not in ends) for side in (piece.inputs, piece.outputs))
            found[places[0]] = replace(piece, inputs=inputs, outputs=given, held=(*piece.held, use))
    return tuple(found)


def _with_constant_outputs(
    partitions: Sequence[Partition], outputs: Collection[int], calls: Collection[int]
) -> tuple[Partition, ...]:
    """Let the last piece that is no call of a subgraph also give the outputs that no operator computes.

    Where all pieces are loops and branches, a piece without operators gives them.
    """
    missing = sorted({*outputs}.difference(*(p.outputs for p in partitions)))
    if not missing:
        return tuple(partitions)
    places = [i for i, p in enumerate(partitions) if not (p.on_device and p.operators[0] in calls)]
    if not places:
        return (*partitions, Partition(True, (), (), tuple(missing)))
    last = partitions[places[-1]]
    given = replace(last, outputs=tuple(sorted({*last.outputs, *missing})))
    return (*partitions[: places[-1]], given, *partitions[places[-1] + 1 :])


def operators_on_cpu(partitions: Sequence[Partition]) -> frozenset[int]:
    """Return the operators that run on the CPU alone; constants may be computed on both sides.

    Args:
        partitions: The pieces.
    """
    device, cpu = ({i for p in partitions if p.on_device == side for i in p.operators} for side in (True, False))
    return frozenset(cpu - device)


def crossing_bytes(partitions: Sequence[Partition], subgraph: Subgraph) -> int:
    """Return the bytes of the tensors that one side writes and the other reads, once each.

    Args:
        partitions: The pieces.
        subgraph: Has the tensors.
    """
    taken, given = (
        {side: {t for p in partitions if p.on_device == side for t in getattr(p, name)} for side in (True, False)}
        for name in ("inputs", "outputs")
    )
    crossing = (given[True] & taken[False]) | (given[False] & taken[True])
    return sum(subgraph.tensors[t].bytes for t in crossing)


def _units(subgraph: Subgraph) -> list[list[Operator]]:
    """Return the operators in file order, in groups that no cut may divide; most stand alone.

    A group is what is bound together, and what lies between: the operators that need a result of it and of which it
    needs one.
    """
    after: dict[int, set[int]] = {o.index: set() for o in subgraph.operators}
    readers: dict[int, set[int]] = {}
    for operator in subgraph.operators:
        for tensor in operator.inputs:
            readers.setdefault(tensor, set()).add(operator.index)
    for operator in subgraph.operators:
        after[operator.index].update(*(readers.get(t, ()) for t in operator.outputs))
    bound = _bound_together(subgraph)
    for group in bound:
        for index in group:
            after[index] |= group
    before: dict[int, set[int]] = {index: set() for index in after}
    for index, later in after.items():
        for other in later:
            before[other].add(index)
    unit_of: dict[int, frozenset[int]] = {}
    for group in bound:
        first = min(group)
        if first not in unit_of:
            unit = frozenset(_reachable(after, first) & _reachable(before, first))
            unit_of |= dict.fromkeys(unit, unit)
    units = dict.fromkeys(unit_of.get(o.index, frozenset((o.index,))) for o in subgraph.operators)
    return [[subgraph.operators[i] for i in sorted(unit)] for unit in units]


def _reachable(edges: Mapping[int, set[int]], start: int) -> set[int]:
    found, pending = {start}, [start]
    while pending:
        new = edges[pending.pop()] - found
        found |= new
        pending += new
    return found


def _bound_together(subgraph: Subgraph) -> list[set[int]]:
    """Operators that use the same variable tensor, and all that use values which exist in one interpreter only.

    Those have CALL_ONCE among them, which gives resource variables their first values.
    """
    groups: dict[int | str, set[int]] = {}
    for operator in subgraph.operators:
        tensors = [subgraph.tensors[t] for t in (*operator.inputs, *operator.outputs) if t >= 0]
        if operator.is_idle:
            continue
        if operator.code == "CALL_ONCE" or any(t.dtype in BOUND_TYPES for t in tensors):
            groups.setdefault("bound", set()).add(operator.index)
        for tensor in tensors:
            if tensor.is_variable:
                groups.setdefault(tensor.index, set()).add(operator.index)
    return list(groups.values())


def _constant_operators(subgraph: Subgraph, capable: Collection[int], outputs: Collection[int]) -> dict[int, Operator]:
    """Output tensor -> operator, for operators of constants alone that both sides can compute for themselves.

    Those that write variables stay beside what reads these.
    """
    known = {t.index for t in subgraph.tensors if t.data is not None}
    found: dict[int, Operator] = {}
    for operator in subgraph.operators:
        shared = operator.index in capable and not any(
            t in outputs or subgraph.tensors[t].is_variable for t in operator.outputs
        )
        if shared and operator.inputs and all(t < 0 or t in known for t in operator.inputs):
            known.update(operator.outputs)
            found |= dict.fromkeys(operator.outputs, operator)
    return found


def _alternate(
    subgraph: Subgraph,
    units: Sequence[list[Operator]],
    capable: Collection[int],
    constant: dict[int, Operator],
    inputs: Sequence[int],
    calls: Collection[int],
    side: bool,
) -> list[tuple[bool, list[Operator]]]:
    free = {o.index for o in constant.values()}
    waiting = [unit for unit in units if unit[0].index not in free and not unit[0].is_idle]
    ready = {-1, *inputs, *constant, *(t.index for t in subgraph.tensors if t.data is not None or t.is_variable)}
    written = {t for unit in waiting for o in unit for t in o.outputs}
    groups: list[tuple[bool, list[Operator]]] = []
    on_device, on_cpu = set(capable) - set(calls), {o.index for o in subgraph.operators} - set(capable)
    while waiting and len(groups) <= MOST_PARTITIONS:
        taken = _take(waiting, ready, written, on_device if side else on_cpu)
        if side and not taken:
            taken = _take(waiting, ready, written, calls, at_most=1)
        if taken:
            groups.append((side, taken))
        else:
            side = not side
    return groups


def _take(
    waiting: list[list[Operator]],
    ready: set[int],
    written: set[int],
    fitting: Collection[int],
    at_most: int | None = None,
) -> list[Operator]:
    """Remove the units from ``waiting`` that can run now, and add their results to ``ready``; units in file order."""
    taken: list[list[Operator]] = []
    for unit in waiting:
        own = {t for o in unit for t in o.outputs}
        known = all(t in ready or t in own or t not in written for o in unit for t in o.inputs)
        if known and unit[0].index in fitting and len(taken) != at_most:
            taken.append(unit)
            ready |= own
    waiting[:] = [unit for unit in waiting if not any(unit is t for t in taken)]
    return [operator for unit in taken for operator in unit]


def _partition_of(
    subgraph: Subgraph,
    groups: Sequence[tuple[bool, list[Operator]]],
    number: int,
    constant: dict[int, Operator],
    inputs: Sequence[int],
    outputs: Sequence[int],
    known: Collection[int],
    calls: Collection[int],
) -> Partition:
    on_device, own = groups[number]
    operators = {o.index: o for o in own}
    is_call = on_device and own[0].index in calls
    pending = [] if is_call else [t for o in own for t in o.inputs]
    while pending:
        source = constant.get(pending.pop())
        if source is not None and source.index not in operators:
            operators[source.index] = source
            pending += source.inputs
    written = {t for o in operators.values() for t in o.outputs}
    written |= {t for o in operators.values() for t in o.inputs if t >= 0 and subgraph.tensors[t].is_variable}
    read = {t for o in operators.values() for t in o.inputs if t >= 0}
    wanted = [({t for o in group for t in o.inputs}, side) for i, (side, group) in enumerate(groups) if i != number]
    elsewhere = {t for tensors, side in wanted for t in tensors if not (side and t in known)}
    # A constant without elements has no data in the file; what no operator writes is one, or the caller's.
    computed = {t for o in subgraph.operators for t in o.outputs} | {*inputs}
    fixed = {t.index for t in subgraph.tensors if t.data is not None or t.is_variable or t.index not in computed}
    fixed |= {t for t in known if on_device and t not in inputs}
    return Partition(
        on_device,
        tuple(sorted(operators)),
        tuple(sorted(t for t in read - written - fixed if t in inputs or t not in constant)),
        tuple(sorted(t for t in written if (t in elsewhere and t not in constant) or t in outputs)),
    )
