"""The device time of each kernel of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelTime:
    """Device time of one launch.

    Attributes:
        kernel: Name of its function, which equal launches share.
        operators: Codes of the operators that it computes.
        begin: Seconds after the first launch began; the CPU's time between two partitions on the device is left out.
        seconds: From its begin to its end.
        macs: Multiplications of convolutions and matrix products.
        bytes: Bytes that it reads and writes, each counted once.
        groups: Its work-groups.
        local_size: Work-items of each of them.
        level: Number of its barrier interval; launches of a piece with the same number do not depend on each other.
        piece: Number of the piece of the model that it belongs to, of which the CPU's operators, loops and branches
            make several; a branch that was not taken has a number, too.
    """

    kernel: str
    operators: tuple[str, ...]
    begin: float
    seconds: float
    macs: int
    bytes: int
    groups: int
    local_size: int
    level: int
    piece: int

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
    """One entry for each launch, in order. Times are medians of several runs.

    Attributes:
        kernels: An entry for each launch.
        cpu_seconds: Wall time of each partition on the CPU, in order, in a single run.
    """

    kernels: tuple[KernelTime, ...]
    cpu_seconds: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        """The sum of all launches, without the pauses between them."""
        return sum(k.seconds for k in self.kernels)
