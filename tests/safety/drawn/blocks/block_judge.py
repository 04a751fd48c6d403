"""Whether outputs are right, by numpy in double and by what rounding alone does to the network.

A network is ill-conditioned in a precision if numpy, which computes each operator in double and rounds its result to
that precision, is itself off by more than half of the limit. Then the limit is four times what numpy is off by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.safety.drawn.blocks.writer import Array, Drawn

# Greatest errors, as parts of the largest number of an output.
LIMITS: Mapping[str, float] = {"fp32": 1e-5, "fp16": 5e-3}


def error(got: Array, expected: Array) -> float:
    """The largest, as a part of the largest number that is expected; infinite where there is a NaN."""
    if got.shape != expected.shape:
        return np.inf
    with np.errstate(invalid="ignore"):
        worst = np.abs(got.astype(np.float64) - expected).max(initial=0.0)
    return float(np.nan_to_num(worst, nan=np.inf) / max(np.abs(expected).max(initial=0.0), 1e-30))


def limits(drawn: Drawn, precision: str) -> list[float]:
    """The greatest error that each output may have."""
    exact, rounded = drawn.expected["double"], drawn.expected[precision]
    own = [error(x, y) for x, y in zip(rounded, exact, strict=True)]
    return [LIMITS[precision] if e <= LIMITS[precision] / 2 else 4 * e for e in own]


def is_ill_conditioned(drawn: Drawn, precision: str) -> bool:
    return max(limits(drawn, precision)) > LIMITS[precision]


def difference(drawn: Drawn, outputs: Sequence[Array], precision: str) -> str | None:
    """Which output is wrong, and by how much; None if all are right."""
    expected = drawn.expected["double"]
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs of {len(expected)}"
    for n, (got, exact, limit) in enumerate(zip(outputs, expected, limits(drawn, precision), strict=True)):
        if not (found := error(got, exact)) <= limit:
            return f"{precision}: output {n} of {exact.shape} is off by {found:.3g} of its range, allowed {limit:.3g}"
    return None
