"""Tables that several verbs print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from tflgpu.cli.console import table

if TYPE_CHECKING:
    from tflgpu.api import CompiledModel, KernelTime, Profile


def start_table(*models: CompiledModel) -> Table:
    """What each stage of compiling took, in one row a model."""
    stages = list(dict.fromkeys(stage for model in models for stage in model.seconds))
    result = table("start", *stages, "total", right=(*stages, "total"), title="start, ms")
    for model in models:
        cells = [f"{1e3 * model.seconds[s]:.1f}" if s in model.seconds else "" for s in stages]
        kind = "cold" if is_cold(model) else "warm"
        result.add_row(kind, *cells, f"{1e3 * sum(model.seconds.values()):.1f}")
    return result


def is_cold(model: CompiledModel) -> bool:
    """Whether a model was compiled, and not taken from the cache: only then is there a stage in which it is planned."""
    return "plan" in model.seconds


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
