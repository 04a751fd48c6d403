"""The device time of each kernel of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelTime:
    """Device time of one launch.

    kernel: name of its function, which equal launches share. operators: codes of the operators that it computes.
    begin: seconds after the first launch began; the CPU's time between two partitions on the device is left out.
    seconds: from its begin to its end.
    macs: multiplications of convolutions and matrix products. bytes: that it reads and writes, each counted once.
    level: number of its barrier interval; launches with the same number do not depend on each other.
    """

    kernel: str
    operators: tuple[str, ...]
    begin: float
    seconds: float
    macs: int
    bytes: int
    level: int

    @property
    def title(self) -> str:
        """What it computes, in words: a chain of operators, which several kernels may have in common."""
        return " + ".join(self.operators) or "(layout conversion)"

    @property
    def gflops(self) -> float | None:
        """Billions of multiplications and additions a second; None without such, or if the clock was too coarse."""
        return 2e-9 * self.macs / self.seconds if self.macs and self.seconds else None

    @property
    def gb_per_second(self) -> float | None:
        """Billions of bytes a second; None if the clock was too coarse."""
        return 1e-9 * self.bytes / self.seconds if self.seconds else None


@dataclass(frozen=True)
class Profile:
    """One entry for each launch, in order. Times are medians of several runs."""

    kernels: tuple[KernelTime, ...]

    @property
    def seconds(self) -> float:
        """The sum of all launches, without the pauses between them."""
        return sum(k.seconds for k in self.kernels)
