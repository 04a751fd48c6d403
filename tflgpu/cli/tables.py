"""Tables that several verbs print."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tflgpu.api import CompiledModel
from tflgpu.cli.terminal.listing import Listing
from tflgpu.report.profile import NUMBERS, Profile, kernel_rows


def start_table(*models: CompiledModel) -> Listing:
    """What each stage of compiling took, in one column a model."""
    stages = list(dict.fromkeys(stage for model in models for stage in model.seconds))
    kinds = ["cold" if is_cold(model) else "warm" for model in models]
    result = Listing("start, ms", *kinds, right=kinds)
    for stage in stages:
        result.add_row(stage, *(f"{1e3 * m.seconds[stage]:.1f}" if stage in m.seconds else "" for m in models))
    result.add_row("total", *(f"{1e3 * sum(m.seconds.values()):.1f}" for m in models), style="bold")
    return result


def is_cold(model: CompiledModel) -> bool:
    """Whether a model was compiled, and not taken from the cache: only then is there a stage in which it is planned."""
    return "plan" in model.seconds


def kernel_table(profile: Profile) -> Listing:
    """One row a kernel, in order: device time, its share of the sum, and its rates."""
    title = f"{len(profile.kernels)} kernels, {profile.seconds * 1e6:.1f} us on the device"
    result = Listing("#", "operators", "kernel", *NUMBERS, right=("#", *NUMBERS), title=title)
    slowest = max(profile.kernels, key=lambda k: k.seconds, default=None)
    for k, row in zip(profile.kernels, kernel_rows(profile), strict=True):
        result.add_row(*row, style="yellow" if k is slowest else "")
    return result


def kernels_as_list(profile: Profile) -> list[dict[str, Any]]:
    """Plain data for JSON."""
    return [asdict(k) | {"gb_per_second": k.gb_per_second, "gflops": k.gflops} for k in profile.kernels]
