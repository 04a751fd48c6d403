"""What became of each operator of a model, as data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tflgpu.lower import Lowered
from tflgpu.plan import Plan


@dataclass(frozen=True)
class OperatorReport:
    """One operator of the file.

    device: ``"device"``, ``"cpu"``, or ``"unsupported"`` in a report that was made without compiling.
    kernel: the number of the launch that computes it, None if it needs none. reasons: why it cannot run on the device.
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
    """All operators and, of a compiled model, what its device part takes.

    arena_bytes, arena_lower_bound: memory of activations, and the largest sum of activations alive at once, which no
        arena can beat. partitions: pieces on the device. crossing_bytes: what goes between device and CPU in one run,
        the model's own inputs and outputs not counted.
    """

    operators: tuple[OperatorReport, ...]
    kernels: int | None = None
    arena_bytes: int | None = None
    arena_lower_bound: int | None = None
    constant_bytes: int | None = None
    partitions: int | None = None
    crossing_bytes: int | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(f"operator {o.index} {o.code}: {r}" for o in self.operators for r in o.reasons)

    @property
    def warning(self) -> str:
        """Which operator codes the device cannot run, in the words that users of the GPU delegate know."""
        by_code = dict.fromkeys(f"{o.code}: {r}" for o in self.operators for r in o.reasons)
        left = sum(o.device == "cpu" for o in self.operators)
        return "\n".join(
            (
                "Following operations are not supported by GPU delegate:",
                *by_code,
                f"{len(self.operators) - left} operations will run on the GPU, "
                f"and the remaining {left} operations will run on the CPU.",
            )
        )

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
                f"{self.kernels} kernels in {self.partitions} partitions, {self.constant_bytes} bytes of constants, "
                f"{self.arena_bytes} bytes of activations (lower bound {self.arena_lower_bound}), "
                f"{self.crossing_bytes} bytes between device and CPU"
            )
        return "\n".join(lines)


def make_report(
    lowered: Lowered, plans: Sequence[Plan] = (), on_cpu: Collection[int] = (), crossing_bytes: int = 0
) -> Report:
    """The report of a lowered model; once it is planned, with its plans and the operators left to the CPU."""
    launched = [planned for plan in plans for planned in plan.kernels]
    kernel_of = {source: number for number, planned in enumerate(launched) for source in planned.node.sources}
    operators = tuple(
        OperatorReport(
            e.index,
            e.code,
            e.version,
            "cpu" if e.index in on_cpu else "unsupported" if e.reasons else "device",
            kernel_of.get(e.index),
            e.reasons,
            e.inputs,
            e.outputs,
        )
        for e in lowered.entries
    )
    if not plans and not on_cpu:
        return Report(operators)
    return Report(
        operators,
        len(launched),
        sum(p.arena_bytes for p in plans),
        sum(p.arena_lower_bound for p in plans),
        sum(p.constant_bytes for p in plans),
        len(plans),
        crossing_bytes,
    )
