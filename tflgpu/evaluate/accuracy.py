"""How far results are from a reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.tensor_info import Quantization

Array = NDArray[Any]

# Integer kernels and a float view of them may round apart: two steps pass, with room for what floats make of them.
QUANTA = 2.001


@dataclass(frozen=True)
class Errors:
    """Errors of one tensor in one run. lowest, highest: of the reference's finite values and zero."""

    average: float
    largest: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, reference: Array, got: Array, quantum: float | None) -> Errors:
        """Return the errors of one tensor in one run, in the tensor's own numbers.

        Args:
            reference: LiteRT's.
            got: tflgpu's.
            quantum: Errors are divided by it; None for 1.

        Raises:
            ValueError: The shapes differ.
        """
        if reference.shape != got.shape:
            raise ValueError(f"LiteRT gives shape {list(reference.shape)} where tflgpu gives {list(got.shape)}")
        expected = reference.astype(np.float64) / (quantum or 1)
        errors = absolute_errors(expected, got.astype(np.float64) / (quantum or 1))
        finite = expected[np.isfinite(expected)]
        average, largest = float(errors.mean()) if errors.size else 0.0, float(errors.max(initial=0))
        return cls(average, largest, float(finite.min(initial=0)), float(finite.max(initial=0)))


class Deviation:
    """The errors of one tensor, over one or more runs.

    Errors are in the tensor's own numbers, which are quanta (steps of the scale) for quantized tensors.
    quantum: what one step is worth in the arrays' numbers; None for tensors that are not quantized.
    """

    def __init__(self, quantum: float | None = None) -> None:
        self.quantum = quantum
        self.max_error = 0.0
        self._averages: list[float] = []
        self._lowest = self._highest = 0.0

    def add(self, reference: Array, got: Array) -> None:
        """Take in one run.

        Args:
            reference: LiteRT's tensor.
            got: tflgpu's tensor.

        Raises:
            ValueError: The shapes differ.
        """
        self.include(Errors.of(reference, got, self.quantum))

    def include(self, errors: Errors) -> None:
        """Take in the errors of one run.

        Args:
            errors: Computed with this tensor's quantum.
        """
        self._averages.append(errors.average)
        self.max_error = max(self.max_error, errors.largest)
        self._lowest = min(self._lowest, errors.lowest)
        self._highest = max(self._highest, errors.highest)

    @property
    def avg_error(self) -> float:
        """The mean over the runs of each run's mean error."""
        return float(np.mean(self._averages))

    @property
    def std_dev(self) -> float:
        """The standard deviation over the runs of each run's mean error; not a number if one is infinite."""
        with np.errstate(invalid="ignore"):
            return float(np.std(self._averages))

    @property
    def extent(self) -> float:
        """The range of the reference's values and zero: half precision stores a value near 1 no better for its
        neighbours being near 1 too."""
        return self._highest - self._lowest or 1.0

    @property
    def relative(self) -> float:
        """The largest error as a part of the extent; 0 for a quantized tensor that is within two quanta."""
        if self.quantum is not None and self.max_error <= QUANTA:
            return 0.0
        return self.max_error / self.extent


def absolute_errors(reference: NDArray[np.float64], got: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``|got - reference|``: 0 where both are the same infinity or not a number, infinite where only one is.

    Args:
        reference: The right numbers.
        got: An array of the same shape.
    """
    with np.errstate(invalid="ignore"):
        errors: NDArray[np.float64] = np.abs(got - reference)
    same = (got == reference) | (np.isnan(got) & np.isnan(reference))
    return np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))


def real(array: Array, quantization: Quantization | None) -> NDArray[np.float64]:
    """Return the numbers that a tensor's elements stand for.

    Args:
        array: Its elements.
        quantization: Scale and zero point, one for the whole tensor; None if it is not quantized.
    """
    if quantization is None or array.dtype.kind == "f":
        return array.astype(np.float64)
    return (array.astype(np.float64) - quantization.zero_point[0]) * quantization.scale[0]
