"""Round to a grid once, and clamp to an activation's range where the grid clamps anyway."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tflgpu.graph.ir import EpilogueOp, Operand, Value
from tflgpu.graph.rewrite_rules import Built, Match, Rule, Rules, op
from tflgpu.ops.epilogue_ops import half_away

# Least and greatest results of activations that only clamp; those of `clamp` are its parameters.
RANGES = {
    "relu": (0.0, np.inf),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
    "relu_0_to_1": (0.0, 1.0),
}


def _merge(match: Match) -> Built:
    """Make an activation that only clamps a part of the rounding after it.

    Rounding is monotonic, so a value that is clamped and rounded is the rounded value, clamped to the rounded limits.
    Integer kernels compute it so. Values that are on a grid already are not rounded to it again.
    """
    epilogue = match.node.epilogue
    for place in range(1, len(epilogue)):
        one = _joined(*epilogue[place - 1 : place + 1]) if _is_read_only_by_next(epilogue, place) else None
        if one is not None:
            merged = (*epilogue[: place - 1], one, *_moved_back(epilogue[place + 1 :], place))
            return [replace(match.node, epilogue=merged)]
    return None


merge_rounding = Rules((Rule("merge_rounding", op(), _merge),))


def _is_read_only_by_next(epilogue: tuple[EpilogueOp, ...], place: int) -> bool:
    """Whether the op at ``place`` alone reads the value before it, as its only operand."""
    return epilogue[place].operands == (Value(place),) and not any(
        Value(place) in op.operands for op in epilogue[place + 1 :]
    )


def _moved_back(ops: Iterable[EpilogueOp], place: int) -> tuple[EpilogueOp, ...]:
    """Ops after two that became one, whose value has the number ``place``."""

    def number(operand: Operand) -> Operand:
        is_later = isinstance(operand, Value) and operand.index > place
        return Value(operand.index - 1) if is_later else operand

    return tuple(op.moved(number) for op in ops)


def _joined(first: EpilogueOp, second: EpilogueOp) -> EpilogueOp | None:
    """One op for two, if that is possible. The second one reads the first."""
    if second.function != "fake_quantize" or len(second.parameters) != 4:
        return None
    scale, zero, low, high = second.parameters
    if first.function in ("fake_quantize", "requantize") and len(first.parameters) != 5:
        same = first.parameters[:2] == (scale, zero) and low <= first.parameters[2] and first.parameters[3] <= high
        return first if same else None
    limits = first.parameters if first.function == "clamp" else RANGES.get(first.function)
    if limits is None:
        return None
    with np.errstate(all="ignore"):  # scales may be anything
        whole = np.clip(half_away(np.array(limits) / scale) + zero, low, high)
    return replace(first, function="fake_quantize", parameters=(scale, zero, *map(float, whole)))
