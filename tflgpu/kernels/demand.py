"""Demand of a kernel on a device, and how long it takes: the one cost function of all kernels.

A kernel's time is that of its busiest compute unit, which computes its tiles in turn. A tile takes a latency and then
its phases, each of which is a number of equal steps. In a step some units of the compute unit work side by side, so the
busiest counts. While a work-group waits, others that are resident on the compute unit work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tflgpu.kernels.tiling import waves
from tflgpu.target import Target


@dataclass(frozen=True)
class Phase:
    """Equal steps of a tile, one after another.

    Attributes:
        steps: How many.
        busy: For how many cycles each of some units that work side by side is busy in a step.
        wait: Cycles in which a step's loads arrive. Resident work-groups hide it.
        barrier: Cycles that work-items wait for each other in a step. Resident work-groups hide it.
    """

    steps: float
    busy: tuple[float, ...] = ()
    wait: float = 0.0
    barrier: float = 0.0

    def cycles(self, groups: int) -> float:
        """Cycles of all steps.

        Args:
            groups: Work-groups that are resident on the compute unit, which divide waits and barriers among them.
        """
        return self.steps * (max((*self.busy, self.wait / groups)) + self.barrier / groups)


@dataclass(frozen=True)
class Demand:
    """The work of a kernel.

    Attributes:
        tiles: How many work-groups compute one each.
        phases: Of a tile.
        latency: Cycles of a tile without any step.
        resident: How many work-groups of a compute unit hide each other's waits.
        least: Cycles that the kernel takes at least, whatever is hidden.
        uneven: Part of a tile that counts once more, because compute units do not end together.
    """

    tiles: int
    phases: tuple[Phase, ...]
    latency: float
    resident: int = 1
    least: float = 0.0
    uneven: float = 0.0

    def cycles(self, target: Target) -> float:
        """Cycles of the kernel on ``target``, of whose busiest compute unit these are."""
        in_turn = waves(self.tiles, target)
        groups = min(self.resident, in_turn)
        tile = self.latency / groups + sum(phase.cycles(groups) for phase in self.phases)
        return max(self.least, (in_turn + self.uneven) * tile)


@dataclass(frozen=True)
class InTurn:
    """Demands that are met one after another, of one kernel or of several."""

    demands: tuple[Demand, ...]

    def cycles(self, target: Target) -> float:
        """Cycles of all of them."""
        return sum(demand.cycles(target) for demand in self.demands)


class Demanding(Protocol):
    """Protocol of the work that a kernel has counted of its tiles."""

    def demand(self, target: Target) -> Demand | InTurn:
        """Return what the kernel demands of a target."""


def cycles(work: Demanding, target: Target) -> float:
    """Return the cycles of a kernel on a target.

    Args:
        work: Counted for one tile configuration.
        target: The device.
    """
    return work.demand(target).cycles(target)
