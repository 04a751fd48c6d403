"""Tables that several verbs print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from tflgpu.api import CompiledModel
from tflgpu.cli.terminal.listing import Listing
from tflgpu.report.profile import NUMBERS, Profile, kernel_rows


def start_table(kinds: Sequence[str], starts: Sequence[Mapping[str, float]], total: str) -> Listing:
    """Return what each stage of compiling took, in one column a start, and the row ``total`` with the sums."""
    result = Listing("start, ms", *kinds, right=kinds)
    for stage in dict.fromkeys(stage for seconds in starts for stage in seconds):
        result.add_row(stage, *(f"{1e3 * seconds[stage]:.1f}" if stage in seconds else "" for seconds in starts))
    result.add_row(total, *(f"{1e3 * sum(seconds.values()):.1f}" for seconds in starts), style="bold")
    return result


def start_kind(model: CompiledModel) -> Literal["cold", "warm"]:
    """Whether a model was compiled or taken from the cache: only compiling has a stage in which it is planned."""
    return "cold" if "plan" in model.seconds else "warm"


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
