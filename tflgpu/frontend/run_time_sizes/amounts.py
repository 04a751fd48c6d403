"""Integers that only a run can tell: each is an element of a tensor, times a factor, plus an offset.

Sizes of tensors become numbers of the graph by SHAPE, and these numbers become sizes again. Between the two a file has
arithmetic and movements of a few integers, which are followed here. Integers are Amounts of ``tflgpu.ops.sized``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Node, Tensor, TensorId, Value
from tflgpu.ops.evaluate import moved
from tflgpu.ops.movement.gather import Gather
from tflgpu.ops.movement.shaping import Rearrange
from tflgpu.ops.sized import MAX_ELEMENTS, Amount, Elements, Number, amount_of, elements_array, elements_of


@dataclass(frozen=True)
class _Range:
    """An integer of which no more is known than that it lies between two others, or less."""

    low: int | None = None
    high: int | None = None


_Known = Amount | _Range


def computed_elements(
    node: Node, inputs: Sequence[Tensor], output: Tensor, found: Mapping[TensorId, Elements]
) -> Elements | None:
    """Return the elements of a node's output, if it is of few integers that follow from those of its inputs.

    Args:
        node: The node.
        inputs: Its inputs.
        output: Its output.
        found: Elements that are known, by tensor.
    """
    if output.dtype not in ("int32", "int64") or not 0 < output.size <= MAX_ELEMENTS:
        return None
    given = [elements_of(t, found) for t in inputs]
    base = _moved(node, inputs, given, output)
    if base is None:
        return None
    values: list[Any] = [base]
    for op in node.epilogue:
        given_operands = (values[o.index] if isinstance(o, Value) else given[o.index] for o in op.operands)
        operands = [operand for operand in given_operands if operand is not None]
        if len(operands) < len(op.operands):
            return None
        arrays = np.broadcast_arrays(*operands)
        flat = [_applied(op, each) for each in zip(*(a.reshape(-1) for a in arrays), strict=True)]
        values.append(elements_array(flat, arrays[0].shape))
    flat = list(np.broadcast_to(values[-1], output.shape).reshape(-1))
    return elements_array([_as_amount(e, output, place) for place, e in enumerate(flat)], output.shape)


def _as_amount(element: _Known, output: Tensor, place: int) -> Amount:
    if isinstance(element, Amount):
        return element
    return amount_of(Number(output.id, place, output, element.low, element.high))


def _moved(node: Node, inputs: Sequence[Tensor], given: Sequence[Elements | None], output: Tensor) -> Any:
    """Return what the node's kernel moves to its result; None for a node that computes, or fills places up."""
    attributes = node.attributes
    if isinstance(attributes, Rearrange | Gather) and attributes.fill is not None:
        return None
    if isinstance(attributes, Gather) and attributes.background is not None:
        return None
    own: list[Any] = []
    for i, tensor in enumerate(inputs):
        if i not in node.epilogue_inputs:
            is_index = isinstance(attributes, Gather) and i > 0
            own.append(tensor.data if is_index else given[i])
    return None if not own or any(e is None for e in own) else moved(node, own, output.shape)


def _applied(op: EpilogueOp, operands: Sequence[_Known]) -> _Known:
    """Return an elementwise function of integers."""
    if op.function in ("to_int", "to_long", "to_index"):
        return operands[0]
    if len(operands) == 2:
        a, b = operands
        if isinstance(a, Amount) and isinstance(b, Amount):
            exact = _exact(op.function, a, b)
            if exact is not None:
                return exact
        if op.function in _LIMITS:
            return _LIMITS[op.function](a, b)
    return _Range()


def _exact(function: str, a: Amount, b: Amount) -> Amount | None:
    if function in ("add", "sub"):
        return a.plus(b, 1 if function == "add" else -1)
    if function == "mul" and (a.known is not None or b.known is not None):
        return a.times(b.known) if b.known is not None else b.times(a.offset)
    if a.known is not None and b.known is not None and function in ("minimum", "maximum"):
        return Amount((min if function == "minimum" else max)(a.known, b.known))
    return a if a == b and function in ("minimum", "maximum") else None


def _extreme(choose: Callable[..., int], both_for_low: bool) -> Callable[[_Known, _Known], _Known]:
    def limits(a: _Known, b: _Known) -> _Known:
        lows, highs = ([v for v in pair if v is not None] for pair in ((a.low, b.low), (a.high, b.high)))
        low = choose(lows, default=None) if not both_for_low or len(lows) == 2 else None
        high = choose(highs, default=None) if both_for_low or len(highs) == 2 else None
        return _Range(low, high)

    return limits


_LIMITS = {"minimum": _extreme(min, both_for_low=True), "maximum": _extreme(max, both_for_low=False)}
