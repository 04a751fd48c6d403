"""Small integers of a loop's body, as far as it tells them: loops that count in equal steps, and rows replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.model.model import FileTensor, Operator, Subgraph
from tflgpu.model.run_time_numbers import Bound, Scalar, trip_count

# Elements. Counters are scalars, and sizes and starts have one element for each axis.
MAX_ELEMENTS = 8


class Affine(NamedTuple):
    """``offset``, and the only element of tensor ``base`` if there is one."""

    base: int | None
    offset: int


Elements = tuple[Affine, ...]  # in row-major order


def affine_elements(subgraph: Subgraph) -> Mapping[int, Elements]:
    """By tensor. Where nothing is known of a tensor of one element, that element is itself the base."""
    found: dict[int, Elements] = {}
    for tensor in subgraph.tensors:
        if tensor.dtype not in ("int32", "int64"):
            continue
        if tensor.data is not None and tensor.data.dtype.kind == "i":
            if tensor.data.size <= MAX_ELEMENTS:
                found[tensor.index] = tuple(Affine(None, int(v)) for v in tensor.data.reshape(-1))
        elif tensor.signature in ((), (1,)):
            found[tensor.index] = (Affine(tensor.index, 0),)
    for operator in subgraph.operators:
        inputs = [found.get(t) for t in operator.inputs]
        if len(operator.outputs) == 1 and operator.outputs[0] >= 0:
            result = _computed(operator, inputs, len(subgraph.tensors[operator.outputs[0]].shape))
            if result is not None and len(result) <= MAX_ELEMENTS:
                found[operator.outputs[0]] = result
    return found


def _computed(operator: Operator, inputs: Sequence[Elements | None], rank: int) -> Elements | None:
    known = [elements for elements in inputs if elements is not None]
    if operator.options.get("fused_activation_function"):
        return None
    match operator.code:
        case "RESHAPE" | "EXPAND_DIMS" | "SQUEEZE":
            return inputs[0] if inputs else None
        case "CONCATENATION" | "PACK" if rank == 1 and len(known) == len(inputs):
            return tuple(element for elements in known for element in elements)
        case "ADD" | "SUB" if len(known) == len(inputs) == 2 and len(known[0]) == len(known[1]):
            sums = [_sum(a, b, 1 if operator.code == "ADD" else -1) for a, b in zip(*known, strict=True)]
            return tuple(s for s in sums if s is not None) if None not in sums else None
    return None


def _sum(a: Affine, b: Affine, sign: int) -> Affine | None:
    """Return ``a + sign * b``."""
    if b.base is None:
        return Affine(a.base, a.offset + sign * b.offset)
    if a.base is None and sign == 1:
        return Affine(b.base, a.offset + b.offset)
    return None


# The operands of each comparison as upper and lower, and what is added to the upper one: a <= b is a < b + 1.
COMPARISONS: Mapping[str, tuple[int, int, int]] = {
    "LESS": (1, 0, 0),
    "LESS_EQUAL": (1, 0, 1),
    "GREATER": (0, 1, 0),
    "GREATER_EQUAL": (0, 1, 1),
}

State = Sequence[Tensor] | Sequence[FileTensor]  # the values that a WHILE takes


def known_iterations(operator: Operator, condition: Subgraph, body: Subgraph, state: State) -> int | None:
    """Return how often a WHILE goes through, where counting from known numbers to known numbers tells; else None.

    Args:
        operator: The WHILE.
        condition: The subgraph that decides.
        body: The subgraph that counts.
        state: The values that the loop takes.
    """
    bounds = bounds_of(operator, condition, body, state)
    known = bounds and all(side.tensor is None for bound in bounds for side in (bound.upper, bound.lower))
    return trip_count(bounds, {}) if known else None


def bounds_of(operator: Operator, condition: Subgraph, body: Subgraph, state: State) -> tuple[Bound, ...]:
    """Return what limits the iterations of a WHILE; empty if more than counting does.

    Args:
        operator: The WHILE.
        condition: The subgraph that decides.
        body: The subgraph that counts.
        state: The values that the loop takes.
    """
    producers = {t: o for o in condition.operators for t in o.outputs}
    tested, counted = affine_elements(condition), affine_elements(body)
    pending, bounds = [condition.outputs[0]], list[Bound]()
    while pending:
        comparison = producers.get(pending.pop())
        if comparison is None:
            return ()
        if comparison.code == "LOGICAL_AND":
            pending += comparison.inputs
            continue
        if comparison.code not in COMPARISONS:
            return ()
        upper, lower, more = COMPARISONS[comparison.code]
        sides = [_scalar(tested.get(comparison.inputs[i]), operator, condition, state) for i in (upper, lower)]
        steps = [_step(tested.get(comparison.inputs[i]), condition, body, counted) for i in (upper, lower)]
        if None in sides or None in steps:
            return ()
        (above, below), (rises, follows) = (s for s in sides if s), (s for s in steps if s is not None)
        if follows <= rises:
            return ()
        bounds.append(Bound(Scalar(above.tensor, above.offset + more), below, follows - rises))
    return tuple(bounds)


def _scalar(elements: Elements | None, operator: Operator, condition: Subgraph, state: State) -> Scalar | None:
    """Return an operand of a comparison when the loop begins, by the tensors that the WHILE takes."""
    if elements is None or len(elements) != 1:
        return None
    base, offset = elements[0]
    if base is None:
        return Scalar(None, offset)
    if base not in condition.inputs:
        return None
    position = condition.inputs.index(base)
    value = state[position]
    if value.size != 1 or value.dtype not in ("int32", "int64"):
        return None
    return (
        Scalar(operator.inputs[position], offset)
        if value.data is None
        else Scalar(None, offset + int(value.data.reshape(-1)[0]))
    )


def _step(
    elements: Elements | None, condition: Subgraph, body: Subgraph, counted: Mapping[int, Elements]
) -> int | None:
    """Return what an iteration adds to an operand of a comparison; None if that differs."""
    if elements is None or elements[0].base is None:
        return 0
    if elements[0].base not in condition.inputs:
        return None
    position = condition.inputs.index(elements[0].base)
    result = body.outputs[position]
    if result == body.inputs[position]:
        return 0
    match counted.get(result):
        case (Affine(base, offset),) if base == body.inputs[position]:
            return offset
    return None


def with_row_updates(subgraph: Subgraph) -> Subgraph:
    """Return the same subgraph with a DYNAMIC_UPDATE_SLICE for ``concatenate([x[:i], row, x[i + 1:]])``.

    The sizes of the slices depend on ``i``, which only a run can tell; the size of the result does not.
    """
    elements = affine_elements(subgraph)
    producers = {t: o for o in subgraph.operators for t in o.outputs}
    uses = Counter([*subgraph.outputs, *(t for o in subgraph.operators for t in o.inputs)])
    tensors = list(subgraph.tensors)
    operators: list[Operator] = []
    dropped: set[int] = set()
    for operator in subgraph.operators:
        parts = [producers.get(t) for t in operator.inputs]
        size = _size_before_a_row(operator, parts, elements, subgraph)
        before = parts[0] if parts else None
        if size is None or before is None:
            operators.append(operator)
            continue
        dropped.update(t for t in (operator.inputs[0], operator.inputs[2]) if uses[t] == 1)
        like = tensors[size.outputs[0]]
        zero = FileTensor(len(tensors), "", (), (), like.dtype, np.zeros((), like.dtype))
        if size.code == "CONCATENATION":
            others = sum(len(elements[t]) for t in size.inputs[1:])
            zero = replace(zero, shape=(others,), signature=(others,), data=np.zeros(others, like.dtype))
        start = FileTensor(len(tensors) + 1, "", like.shape, like.signature, like.dtype)
        tensors += [zero, start]
        zeros = (zero.index,) * (len(size.inputs) - 1 if size.code == "PACK" else 1)
        inputs = before.inputs[0], operator.inputs[1], start.index
        operators += [
            replace(size, index=operator.index, inputs=(size.inputs[0], *zeros), outputs=(start.index,)),
            replace(operator, code="DYNAMIC_UPDATE_SLICE", version=1, inputs=inputs, options={}),
        ]
    kept = tuple(o for o in operators if not (o.code == "SLICE" and o.outputs[0] in dropped))
    return replace(subgraph, tensors=tuple(tensors), operators=kept)


def _size_before_a_row(
    operator: Operator, parts: list[Operator | None], elements: Mapping[int, Elements], subgraph: Subgraph
) -> Operator | None:
    """Return what makes the size of the slice before the row, ``[i, -1, ...]``; None if it is no row that is
    replaced."""
    if operator.code != "CONCATENATION" or len(parts) != 3 or operator.options.get("axis") != 0:
        return None
    before, item, after = parts
    if before is None or item is None or after is None or not before.code == after.code == "SLICE":
        return None
    fused = operator.options.get("fused_activation_function")
    if fused or before.inputs[0] != after.inputs[0] or not _is_one_row(item, elements):
        return None
    size = next((o for o in subgraph.operators if before.inputs[2] in o.outputs), None)
    bounds = [elements.get(t, ()) for o in (before, after) for t in o.inputs[1:]]
    if size is None or size.code not in ("CONCATENATION", "PACK") or len({len(b) for b in bounds}) != 1:
        return None
    first, taken, second, rest = bounds
    if len(taken) < 2 or elements.get(size.inputs[0]) != taken[:1]:
        return None
    none, whole = (Affine(None, 0),) * (len(taken) - 1), (Affine(None, -1),) * (len(taken) - 1)
    following = Affine(taken[0].base, taken[0].offset + 1)
    found = (first[0], first[1:], taken[1:], second, rest)
    return size if found == (Affine(None, 0), none, whole, (following, *none), (Affine(None, -1), *whole)) else None


def _is_one_row(item: Operator, elements: Mapping[int, Elements]) -> bool:
    """Whether the first axis of an operator's result has size 1 in every run, whatever the file declares."""
    if item.code not in ("EXPAND_DIMS", "RESHAPE") or len(item.inputs) != 2:
        return False
    chosen = elements.get(item.inputs[1], ())
    return bool(chosen) and chosen[0] == Affine(None, 0 if item.code == "EXPAND_DIMS" else 1)
