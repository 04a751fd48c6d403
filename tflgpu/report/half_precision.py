"""How far half precision took a model's answers on generated inputs, as data."""

from __future__ import annotations

from dataclasses import dataclass

# Part of an output's range beyond which its error is no rounding of half.
LARGEST_ERROR = 0.005

# From here on it is a defect, and no rounding of all tensors.
LARGE = 0.05

# Why there was no comparison where the caller wanted none; who wants one later gets it.
NOT_ASKED = "it was compiled with Numerics(half_check='off')"


# What an infinite error, or one that is no number, counts as: JSON has neither.
GREATEST_ERROR = 1e30


def _finite(error: float) -> float:
    """Return the error, or the greatest one for infinity and NaN."""
    return error if error < GREATEST_ERROR else GREATEST_ERROR


@dataclass(frozen=True)
class OffTensor:
    """The first tensor that half precision spoils.

    name: in the file, ``""`` for one within an operator. operators: those that compute it. error: as a part of its
    range. extreme: its value in float that is beyond 65504, and was capped; 0 if none was.
    """

    name: str
    operators: tuple[int, ...]
    error: float
    extreme: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", _finite(self.error))

    def __str__(self) -> str:
        name = repr(self.name) if self.name else "a result within an operator"
        place = f"{name} (operator {', '.join(map(str, self.operators))})"
        if self.extreme:
            return f"{place} reaches {self.extreme:.3g} and was capped at {'-' * (self.extreme < 0)}65504"
        return f"{place} is off by {self.error:.2g} of its range"


@dataclass(frozen=True)
class HalfPrecision:
    """Result of the check of a model in half precision.

    judge: whose answers it was compared with; ``""`` if it was not. error: the largest of an output, as a part of its
    range. first: the first tensor that is off. unchecked: why there was no comparison. inputs: how many sets were run.
    repaired: the error before tensors were kept in float that the check had found; 0 if there was no need.
    """

    judge: str
    error: float = 0.0
    first: OffTensor | None = None
    unchecked: str = ""
    inputs: int = 0
    repaired: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", _finite(self.error))
        object.__setattr__(self, "repaired", _finite(self.repaired))

    @property
    def summary(self) -> str:
        """In a sentence."""
        if self.unchecked:
            return f"half precision was not checked: {self.unchecked}"
        found = (
            f"in half precision outputs are off by {self.error:.2g} of their range at most, on {self._sets}, "
            f"compared with {self.judge}"
        )
        if self.repaired:
            found += f" (by {self.repaired:.2g} before more tensors were kept in float)"
        return f"{found}; {self.first}" if self.first else found

    @property
    def is_off(self) -> bool:
        """Whether an output is further off than rounding should take it."""
        return not self.unchecked and self.error > LARGEST_ERROR

    @property
    def _sets(self) -> str:
        return f"{self.inputs} sets of inputs" if self.inputs != 1 else "one set of inputs"

    @property
    def warning(self) -> str:
        """For the caller; empty where half precision does."""
        if self.first is None:
            return ""
        return (
            f"half precision is not enough for this model: {self.first}. Outputs are off by {self.error:.2g} of their "
            f"range at most, on {self._sets}, compared with {self.judge}. precision='fp32' keeps all tensors in "
            "float, Numerics(tolerance=0.01) those that need it; `tflgpu diff` compares on your own inputs"
        )
