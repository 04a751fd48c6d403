"""Tables that several verbs print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from tflgpu.cli.console import table

if TYPE_CHECKING:
    from tflgpu.api import CompiledModel, KernelTime, Profile


def start_table(model: CompiledModel) -> Table:
    """What each stage of compiling took, in one row."""
    stages = (*model.seconds, "total")
    result = table(*stages, right=stages, title="start, ms")
    result.add_row(*(f"{1e3 * s:.1f}" for s in (*model.seconds.values(), sum(model.seconds.values()))))
    return result


def kernel_table(profile: Profile) -> Table:
    """One row a kernel, in order: device time, its share of the sum, and its rate."""
    title = f"{len(profile.kernels)} kernels, {profile.seconds * 1e6:.1f} us on the device"
    numbers = ("us", "share", "GFLOP/s")
    result = table("#", "operators", "kernel", *numbers, right=("#", *numbers), title=title)
    slowest = max(profile.kernels, key=lambda k: k.seconds, default=None)
    for number, k in enumerate(profile.kernels):
        rate = gflops(k)
        result.add_row(
            str(number),
            " + ".join(k.operators) or "(layout conversion)",
            k.kernel.rpartition("_")[0],
            f"{k.seconds * 1e6:.1f}",
            f"{k.seconds / profile.seconds:.0%}" if profile.seconds else "",
            "" if rate is None else f"{rate:.1f}",
            style="yellow" if k is slowest else "",
        )
    return result


def gflops(kernel: KernelTime) -> float | None:
    """Billions of multiplications and additions a second; None for kernels that are not about them."""
    return 2e-9 * kernel.macs / kernel.seconds if kernel.macs and kernel.seconds else None
