"""Which tensors to keep in float: the fewest that keep outputs within a limit, without trying every set of them.

Rounding errors of different tensors are as good as independent, so those of a mixture are about the root of the sum of
squares of what each tensor brings about alone. That is measured once for every tensor, or for groups of neighbours
where a model is slow. Of the tensors sorted by it, how many to keep is found by halving, and each number is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
