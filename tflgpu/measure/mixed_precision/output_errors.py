"""How far outputs are from the answers in fp32, as parts of their ranges."""

from __future__ import annotations

from collections.abc import Sequence
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
