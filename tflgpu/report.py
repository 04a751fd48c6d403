"""What became of each operator of a model, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tflgpu.lower import Lowered
from tflgpu.plan import Plan


@dataclass(frozen=True)
class OperatorReport:
    """One operator of the file. ``kernel`` is the number of the launch that computes it, None if it needs none.

    reasons: why it cannot run on the device; empty if it can.
    """

    index: int
    code: str
    version: int
    device: str
    kernel: int | None
    reasons: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All operators, and the memory of the plan in bytes where there is one.

    arena_lower_bound: the largest sum of activations alive at once, which no arena can beat.
    """

    operators: tuple[OperatorReport, ...]
    kernels: int | None = None
    arena_bytes: int | None = None
    arena_lower_bound: int | None = None
    constant_bytes: int | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(f"operator {o.index} {o.code}: {r}" for o in self.operators for r in o.reasons)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{'#':>4}  {'operator':<24} {'v':>2}  {'where':<12} {'kernel':>6}  reasons"]
        for o in self.operators:
            kernel = "" if o.kernel is None else str(o.kernel)
            reasons = "; ".join(o.reasons)
            lines.append(f"{o.index:>4}  {o.code:<24} {o.version:>2}  {o.device:<12} {kernel:>6}  {reasons}".rstrip())
        refused = sum(bool(o.reasons) for o in self.operators)
        lines.append(f"{len(self.operators) - refused} of {len(self.operators)} operators can run on the device")
        if self.arena_bytes is not None:
            lines.append(
                f"{self.kernels} kernels, {self.constant_bytes} bytes of constants, "
                f"{self.arena_bytes} bytes of activations (lower bound {self.arena_lower_bound})"
            )
        return "\n".join(lines)


def make_report(lowered: Lowered, plan: Plan | None = None) -> Report:
    """The report of a lowered model, with the plan's numbers if it got that far."""
    kernel_of: dict[int, int] = {}
    for number, planned in enumerate(plan.kernels if plan else ()):
        kernel_of |= {source: number for source in planned.node.sources}
    operators = tuple(
        OperatorReport(
            e.index,
            e.code,
            e.version,
            "unsupported" if e.reasons else "device",
            kernel_of.get(e.index),
            e.reasons,
            e.inputs,
            e.outputs,
        )
        for e in lowered.entries
    )
    if plan is None:
        return Report(operators)
    return Report(operators, len(plan.kernels), plan.arena_bytes, plan.arena_lower_bound, plan.constant_bytes)
