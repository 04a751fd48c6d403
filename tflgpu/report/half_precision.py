"""How far half precision took a model's answers, and which tensors ``Numerics(tolerance=)`` kept in float, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Part of an output's range beyond which its error is no rounding of half.
LARGEST_ERROR = 0.005

# From here on it is a defect, and no rounding of all tensors.
LARGE = 0.05

# Tensors that a sentence names.
MOST_PLACES = 4

# Why there was no comparison where the caller wanted none; who wants one later gets it.
NOT_ASKED = "it was compiled with Numerics(half_check='off')"

# Why there was none where it would be lost, and so be made at each start.
NOT_KEPT = "no cache would keep the result; Numerics(half_check='always') compares all the same"

# Stands for an error that is infinite or no number: JSON has neither.
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


# The reasons for which a tensor stays in float, in words.
REASONS = {
    "overflow": "it may exceed 65504",
    "underflow": "small numbers of it would become zero",
    "cancellation": "what reads it multiplies its rounding",
    "index": "it decides an index, a branch or a whole number",
    "mean": "it is a mean, whose differences count",
    "whole": "it holds whole numbers beyond 2048",
    "measured": "runs show its rounding in the outputs",
}


@dataclass(frozen=True)
class FloatTensor:
    """A tensor that stays in float in half precision.

    name: in the file, ``""`` for one within an operator. operators: those that compute it; of weights, those that read
    them. reason: a key of :data:`REASONS`. bytes: how many more than in half.
    """

    name: str
    operators: tuple[int, ...]
    reason: str
    bytes: int

    @property
    def place(self) -> str:
        """The name, or the operators within which it is computed."""
        return repr(self.name) if self.name else f"a result of operator {', '.join(map(str, self.operators))}"


@dataclass(frozen=True)
class FloatStorage:
    """Tensors that stay in float in half precision, but for a model's inputs, outputs and states.

    tensors: in order of execution. total_bytes: of all activations and constants, as stored.
    """

    tensors: tuple[FloatTensor, ...]
    total_bytes: int

    @property
    def bytes(self) -> int:
        """How many more they take than in half."""
        return sum(t.bytes for t in self.tensors)

    @property
    def lines(self) -> tuple[str, ...]:
        """Sentences about what stays in float, a line for each reason; none where nothing does."""
        if not self.tensors:
            return ()
        share = self.bytes / max(self.total_bytes, 1)
        count = len(self.tensors)
        head = (
            f"{count} tensor{'s' * (count != 1)} {'stay' if count != 1 else 'stays'} in float for precision: "
            f"{self.bytes:,} bytes more than in half, {share:.1%} of all activations and constants"
        )
        by_reason = {reason: [t.place for t in self.tensors if t.reason == reason] for reason in REASONS}
        return (head, *(f"  {REASONS[reason]}: {_listed(places)}" for reason, places in by_reason.items() if places))


def _listed(places: Sequence[str]) -> str:
    rest = len(places) - MOST_PLACES
    return ", ".join(places[:MOST_PLACES]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True)
class HalfPrecision:
    """Result of the check of a model in half precision.

    judge: whose answers it was compared with; ``""`` if it was not. error: the largest of an output, as a part of its
    range. first: the first tensor that is off. unchecked: why there was no comparison. inputs: how many sets were run.
    repaired: the error before tensors were kept in float that the check had found; 0 if there was no need. in_float:
    whether these are all tensors. in_fp32: the error that the model has in fp32, too, beside the same judge, whose
    integers may round to the next step; 0 if that was not asked.
    """

    judge: str
    error: float = 0.0
    first: OffTensor | None = None
    unchecked: str = ""
    inputs: int = 0
    repaired: float = 0.0
    in_float: bool = False
    in_fp32: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", _finite(self.error))
        object.__setattr__(self, "in_fp32", _finite(self.in_fp32))
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
            found += f" (by {self.repaired:.2g} before {'all' if self.in_float else 'more'} tensors were kept in float)"
        if self.in_fp32:
            found += f" (in fp32 by {self.in_fp32:.2g})"
        return f"{found}; {self.first}" if self.first else found

    @property
    def is_off(self) -> bool:
        """Whether an output is further off than rounding should take it, and than it is in fp32."""
        return not self.unchecked and self.error > max(LARGEST_ERROR, self.in_fp32)

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


@dataclass(frozen=True)
class KeptTensor:
    """A tensor that is stored in float: an activation, or weights.

    name: in the file, ``""`` for one within an operator. operators: those that compute it, or read the weights.
    error: the largest of an output, as a part of its range, if of all tensors this one alone, or its group, is stored
    in half.
    """

    name: str
    operators: tuple[int, ...]
    error: float

    def __str__(self) -> str:
        place = ", ".join(map(str, self.operators))
        return (
            f"float: {self.name or 'a result within an operator'} (operator {place}), in half off by {self.error:.2g}"
        )


@dataclass(frozen=True)
class MixedPrecision:
    """How the storage of tensors was chosen.

    tolerance: the largest error that passes, of each output as a part of its range. inputs: how many sets of inputs
    were run. generated: whether these were made up. tensors: how many could be stored in half. half_error: the largest
    error with all of them in half. error: that of what was compiled. kept: those in float, the most sensitive first.
    fp32_reason: why that is all of them, and the plan is that of fp32; ``""`` for another plan. seconds: what it took.
    """

    tolerance: float
    inputs: int
    generated: bool
    tensors: int
    half_error: float
    error: float
    kept: tuple[KeptTensor, ...]
    fp32_reason: str
    seconds: float

    @property
    def summary(self) -> str:
        """In a sentence or two."""
        source = "generated inputs" if self.generated else "calibration inputs"
        reason = f" as in fp32, since {self.fp32_reason}" if self.fp32_reason else ""
        return (
            f"{len(self.kept)} of {self.tensors} tensors stay in float{reason}: on {self.inputs} {source} "
            f"outputs are off by {self.error:.2g} of their range at most, with all in half by {self.half_error:.2g} "
            f"(tolerance {self.tolerance:g}, found in {self.seconds:.1f} s)"
        )
