"""How far outputs are from the answers in fp32, and the fewest tensors in float that keep them within a limit.

Rounding errors of different tensors are as good as independent, so those of a mixture are about the root of the sum of
squares of what each tensor brings about alone. That is measured once for every tensor, or for groups of neighbours
where a model is slow. Of the tensors sorted by it, how many to keep is found by halving, and each number is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.tensor_info import TensorInfo

Array = NDArray[Any]
Floats = NDArray[np.float64]


# Part of what an operator chooses that may be another choice: inputs that were made up have many near ones.
OTHERS = 0.2


class OutputErrors:
    """The range of an output is that of its values and zero, in all runs on inputs of one scale. Zero belongs to it:
    half precision stores a value near 1 no better for its neighbours being near 1 too.
    """

    def __init__(self, infos: Sequence[TensorInfo], answers: Sequence[Sequence[Array]], scales: Sequence[int]) -> None:
        """answers: in fp32, of several runs. scales: equal numbers for runs on inputs of one scale; 0 for the usual
        one, whose runs count for all but negative ones.

        Outputs that are integers, and stand for no numbers, are left out.
        """
        self._counted = [n for n, info in enumerate(infos) if np.dtype(info.dtype).kind == "f" or info.quantization]
        self._answers = [self._floats(each) for each in answers]
        counted = range(len(self._counted))
        self._ranges = [
            [
                _range([a[n] for a, s in zip(self._answers, scales, strict=True) if s in (min(scale, 0), scale)])
                for n in counted
            ]
            for scale in scales
        ]

    def of(self, run: int, results: Sequence[Array]) -> Floats:
        """Return the largest error of each output, as a part of its range; infinite where only one of both is a number.

        Args:
            run: The number of the set of inputs.
            results: The outputs in order.
        """
        found = []
        for answer, result, size in zip(self._answers[run], self._floats(results), self._ranges[run], strict=True):
            with np.errstate(invalid="ignore"):
                difference = np.abs(result - answer)
            same = (result == answer) | (np.isnan(result) & np.isnan(answer))
            wrong = np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))
            found.append(float(wrong.max(initial=0.0)) / (size or 1.0))
        return np.array(found)

    def _floats(self, results: Sequence[Array]) -> list[Floats]:
        return [results[n].astype(np.float64) for n in self._counted]


def error_of_chosen(answer: Array, result: Array) -> float:
    """How far an output of an operator that chooses is off, as a set: near numbers may change places, and few of them.

    Args:
        answer: In fp32.
        result: Of the same shape.

    Returns:
        Of floats the error as a part of the range, of integers the part of them that is missing; 0 where only
        :data:`OTHERS` of them are off.
    """
    if answer.dtype.kind == "f":
        right, found = (np.sort(x.astype(np.float64), None) for x in (answer, result))
        difference = np.sort(np.nan_to_num(np.abs(right - found)))
        kept = difference[: difference.size - int(OTHERS * difference.size)]
        return float(kept.max(initial=0.0)) / (_range([right]) or 1.0)
    rows = answer.reshape(-1, answer.shape[-1] if answer.ndim > 1 else 1)
    others = [np.isin(a, b, invert=True).mean() for a, b in zip(result.reshape(rows.shape), rows, strict=True)]
    share = float(np.mean(others)) if others else 0.0
    return share if share > OTHERS else 0.0


def error_of_integers(answer: Array, result: Array) -> float:
    """Return how far integers are off, beyond a step, as a part of their range.

    Args:
        answer: The right integers, which stand for no quantized numbers.
        result: Those of a run.
    """
    difference = np.abs(answer.astype(np.float64) - result.astype(np.float64))
    return max(float(difference.max(initial=0.0)) - 1, 0.0) / (_range([answer.astype(np.float64)]) or 1.0)


def _range(values: Sequence[Floats]) -> float:
    """Return the range of the finite ones and zero; of quantized values, in quanta."""
    finite = np.concatenate([each[np.isfinite(each)] for each in values])
    return float(finite.max(initial=0.0) - finite.min(initial=0.0))


Errors = NDArray[np.float64]  # by sets of inputs and outputs, as parts of ranges

# The errors of a mixture. given: the places of tensors that stay in float; the numbers of the inputs to run.
Measure = Callable[[frozenset[int], Sequence[int]], Errors]

HARDEST = 3  # sets of inputs, those with the largest errors, on which tensors are tried one by one


@dataclass(frozen=True)
class Sensitivities:
    """Errors that rounding brings about. half: the largest error with all tensors in half.

    groups: tensors by their places, in groups of neighbours. errors: by groups, inputs and outputs, if only the group
    is rounded.
    """

    half: float
    groups: tuple[tuple[int, ...], ...]
    errors: Errors

    @property
    def largest(self) -> Errors:
        """The largest error of each group."""
        found: Errors = self.errors.max((1, 2), initial=0.0)
        return found


def sensitivities(measure: Measure, tensors: int, inputs: int, runs: int) -> Sensitivities:
    """Measure the errors of outputs if one tensor, or a group of tensors, is rounded to half.

    Args:
        measure: Runs the model on some sets of inputs with some tensors in float.
        tensors: Their number.
        inputs: The number of sets of inputs.
        runs: Most runs of one set of inputs; with few of them, groups of tensors are tried.
    """
    half = measure(frozenset(), range(inputs))
    hardest = np.argsort(-half.max(1, initial=0.0), kind="stable")[:HARDEST]
    every = frozenset(range(tensors))
    count = max(1, min(tensors, runs // len(hardest)))
    groups = [tuple(map(int, group)) for group in np.array_split(np.arange(tensors), count)]
    errors = np.array([measure(every.difference(group), [int(n) for n in hardest]) for group in groups])
    return Sensitivities(float(half.max(initial=0.0)), tuple(groups), errors)


def fewest_kept(measure: Measure, found: Sensitivities, inputs: int, expected: float, limit: float) -> frozenset[int]:
    """Return the tensors to keep in float: the most sensitive ones, and as few as possible.

    Args:
        measure: Runs the model on some sets of inputs with some tensors in float.
        found: The errors of each tensor alone.
        inputs: The number of sets of inputs.
        expected: Greatest root of the sum of squares of the errors of the tensors that are rounded.
        limit: Greatest error with all of these rounded together.
    """
    order = np.argsort(-found.largest, kind="stable")
    squares = np.square(found.errors[order])
    rest = np.sqrt(np.cumsum(squares[::-1], 0)[::-1].max((1, 2), initial=0.0))  # of what comes from a place on
    least = int(np.sum(rest > expected))

    def kept(count: int) -> frozenset[int]:
        return frozenset(tensor for group in order[:count] for tensor in found.groups[group])

    def fits(count: int) -> bool:
        return bool(measure(kept(count), range(inputs)).max(initial=0.0) <= limit)

    low, high = least, len(order)  # all in float is no error at all
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return kept(low)
