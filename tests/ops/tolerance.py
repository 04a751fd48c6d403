"""How far a device may be from the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

HALF_ROUNDING = 2.0**-11  # relative, of normal numbers
HALF_SMALLEST = 2.0**-25  # absolute, where half precision is subnormal


@dataclass(frozen=True)
class Tolerance:
    """Allowed error per precision, relative to the largest value that took part.

    In fp32 an element may be off by ``fp32 * (max(1, R) * max(1, K / 64) + |expected|)``, in fp16 by
    ``fp16 * R``, where K is ``terms`` and R the largest of ``magnitude`` and the finite expected values.
    Zero asks for the reference's own bits in fp32. In fp16 a moved value may have been stored in half precision on
    the way or not (a lone operator goes from float input to float output): it may be off by that one rounding.
    """

    fp32: float = 1e-5
    fp16: float = 2e-2
    magnitude: float = 0.0
    """Largest value that was summed or clamped on the way, which the result may hide."""
    terms: int = 1
    """Number of terms of the longest sum."""

    def bound(self, expected: NDArray[np.float64], precision: str) -> NDArray[np.float64]:
        """Allowed error of each element of ``expected``."""
        size = np.abs(expected, where=np.isfinite(expected), out=np.zeros_like(expected))
        largest = max(self.magnitude, float(size.max(initial=0)))
        if precision == "fp32":
            return self.fp32 * (max(1.0, largest) * max(1.0, self.terms / 64) + size)
        if self.fp16 == 0:
            return size * HALF_ROUNDING + HALF_SMALLEST
        return np.full_like(expected, self.fp16 * max(largest, float(np.finfo(np.float16).smallest_normal)))


# In fp16_fast, of the operators that add up products in half: what takes the place of ``Tolerance.fp16``. Behind each,
# the largest error of 24 cases in fp16 and in fp16_fast.
SUMS_IN_HALF = {
    "CONV_2D": 4e-3,  # 0.6e-3, 1.4e-3
    "DEPTHWISE_CONV_2D": 3e-3,  # 0.4e-3, 0.6e-3
    "TRANSPOSE_CONV": 3e-3,  # 0.4e-3, 1.0e-3
    "Convolution2DTransposeBias": 3e-3,  # the same kernel
    "FULLY_CONNECTED": 3e-3,  # 0.6e-3, 1.1e-3
    "BATCH_MATMUL": 3e-3,  # 0.4e-3, 1.0e-3
    "UNIDIRECTIONAL_SEQUENCE_LSTM": 2e-2,  # its inputs alone are multiplied in half; the gates are as in fp16
}

ARITHMETIC = Tolerance()
EXACT = Tolerance(fp32=0.0, fp16=0.0)


def check(
    got: NDArray[Any],
    expected: NDArray[Any],
    tolerance: Tolerance,
    precision: str,
    note: str = "",
    bound: NDArray[np.float64] | None = None,
) -> None:
    """Compare one output with its reference; integers and infinities must be equal, NaN is always wrong.

    Args:
        bound: how far each element may be off, integers as well; by default by the tolerance.

    Raises:
        AssertionError: another shape or dtype, or elements out of bounds; names the worst one.
    """
    dtype = np.dtype(np.float32) if expected.dtype.kind == "f" else expected.dtype
    assert got.dtype == dtype, f"dtype {got.dtype}, not {dtype}; {note}"
    assert got.shape == expected.shape, f"shape {got.shape}, not {expected.shape}; {note}"
    equal = got == expected
    if dtype.kind != "f":
        got, expected = got.astype(np.float64), expected.astype(np.float64)
        bound = (
            np.zeros(expected.shape) if bound is None else bound
        )  # in every precision; and double cannot tell all integers of 64 bits apart
        error = np.where(equal, 0.0, np.maximum(np.abs(got - expected), 1.0))
    else:
        bound = tolerance.bound(expected, precision) if bound is None else bound
        with np.errstate(invalid="ignore"):  # inf - inf, decided by the equality
            error = np.where(equal, 0.0, np.abs(got - expected))
    wrong = ~(error <= bound)
    if not wrong.any():
        return
    worst = np.unravel_index(np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1.0)), wrong.shape)
    raise AssertionError(
        f"{precision}: {wrong.sum()} of {wrong.size} elements are wrong, worst at {tuple(map(int, worst))}: "
        f"got {got[worst]:.9g}, expected {expected[worst]:.9g}, "
        f"error {error[worst]:.3g}, allowed {bound[worst]:.3g}; {note}"
    )
