"""Wall time by stage, and the device time of each kernel of a run."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from tflgpu.report.table import Table

LOGGER = logging.getLogger(__name__)


class Stopwatch:
    """Seconds by stage, summed over all laps of a stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap to a stage.

        Args:
            name: The stage. Laps of the same name add up.
        """
        now = time.perf_counter()
        seconds = now - self._last
        self.laps[name], self._last = self.laps.get(name, 0.0) + seconds, now
        LOGGER.debug("%s took %.1f ms", name, 1e3 * seconds)


class Rates:
    """Rates that follow from a kernel's work and time."""

    macs: int
    bytes: int
    seconds: float | None

    @property
    def gflops(self) -> float | None:
        """Billions of multiplications and additions a second; None without such, or if the clock was too coarse."""
        return 2e-9 * self.macs / self.seconds if self.macs and self.seconds else None

    @property
    def gb_per_second(self) -> float | None:
        """Billions of bytes a second; None if the clock was too coarse."""
        return 1e-9 * self.bytes / self.seconds if self.seconds else None


@dataclass(frozen=True)
class KernelTime(Rates):
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
        short: Seconds that a tenth of the runs took at most; None if nothing was measured.
        long: Seconds that a tenth of the runs took at least.
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
    short: float | None = None
    long: float | None = None

    @property
    def title(self) -> str:
        """Title of the kernel, in words: a chain of operators, which several kernels may have in common."""
        return " + ".join(self.operators) or "(layout conversion)"


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

    def __str__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        return self._table.html()

    @property
    def _table(self) -> Table:
        title = f"{len(self.kernels)} kernels, {self.seconds * 1e6:.1f} us on the device"
        on_cpu = [f"partition {n} on the CPU: {s * 1e6:.1f} us" for n, s in enumerate(self.cpu_seconds)]
        return Table(title, ("#", "operators", "kernel", *NUMBERS), kernel_rows(self), ("#", *NUMBERS), on_cpu)


# Headers of the numbers in a row of a kernel.
NUMBERS = ("us", "share", "GB/s", "GFLOP/s")


def kernel_rows(profile: Profile) -> list[tuple[str, ...]]:
    """Return one row for each kernel, in order of execution, as texts.

    Args:
        profile: The times of one run.

    Returns:
        Rows of number, operators, function, device time in microseconds, share of the sum, GB/s and GFLOP/s. Rates are
        empty where the bytes or the multiplications are unknown.
    """
    return [
        (
            str(number),
            k.title,
            k.kernel.rpartition("_")[0],
            f"{k.seconds * 1e6:.1f}",
            f"{k.seconds / profile.seconds:.0%}" if profile.seconds else "",
            *("" if rate is None else f"{rate:.1f}" for rate in (k.gb_per_second, k.gflops)),
        )
        for number, k in enumerate(profile.kernels)
    ]
