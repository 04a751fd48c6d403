"""Which tensors ``Numerics(tolerance=)`` kept in float, and why, as data."""

from __future__ import annotations

from dataclasses import dataclass


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
