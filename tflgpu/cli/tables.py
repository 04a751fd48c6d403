"""Tables that several verbs print: of starts, of kernels, and of kernels by their type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.markup import escape
from rich.table import Table

from tflgpu.api import CompiledModel
from tflgpu.cli.console import Listing
from tflgpu.report.profile import NUMBERS, KernelTime, Profile, kernel_rows


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


# Rows of the slowest kernels, as TFLite's benchmark_model prints them.
TOP = 10

# Headers of what both tables have of each row.
BOTH_NUMBERS = ("us", "%", "cdf%", "kB")


@dataclass(frozen=True)
class NodeType:
    """Kernels with the same title. seconds, bytes: of all of them in one run."""

    node_type: str
    count: int
    seconds: float
    bytes: int


def node_types(kernels: Iterable[KernelTime]) -> list[NodeType]:
    """One for each title, the one that takes longest first."""
    groups: dict[str, list[KernelTime]] = {}
    for kernel in kernels:
        groups.setdefault(kernel.title, []).append(kernel)
    types = [NodeType(name, len(k), sum(o.seconds for o in k), sum(o.bytes for o in k)) for name, k in groups.items()]
    return sorted(types, key=lambda t: -t.seconds)


def profile_tables(profile: Profile) -> tuple[Table, Table, Table]:
    """Return the three tables of TFLite's benchmark_model: in the order of a run, the slowest kernels, and by type."""
    return kernel_table(profile), _slowest_table(profile), _node_type_table(profile)


def _slowest_table(profile: Profile) -> Table:
    """Return the slowest kernels. #: their place in the run's order. p10, p90: percentiles of their time, in us."""
    numbers = ("us", "p10", "p90", *BOTH_NUMBERS[1:])
    result = Listing("#", "node type", *numbers, right=("#", *numbers), title="top by computation time")
    ranked = sorted(enumerate(profile.kernels), key=lambda k: -k[1].seconds)[:TOP]
    for (number, kernel), (median, *cells) in zip(ranked, _numbers([k for _, k in ranked], profile), strict=True):
        spread = ("" if seconds is None else f"{1e6 * seconds:.1f}" for seconds in (kernel.short, kernel.long))
        result.add_row(str(number), escape(kernel.title), median, *spread, *cells)
    return result


def _node_type_table(profile: Profile) -> Table:
    """One row for each type of kernels."""
    numbers = ("count", *BOTH_NUMBERS)
    result = Listing("node type", *numbers, right=numbers, title="summary by node type")
    types = node_types(profile.kernels)
    for each, cells in zip(types, _numbers(types, profile), strict=True):
        result.add_row(escape(each.node_type), str(each.count), *cells)
    return result


def _numbers(rows: Sequence[KernelTime | NodeType], profile: Profile) -> Iterator[tuple[str, ...]]:
    """Microseconds of each row, the parts of the total that it and all up to it are, and its kilobytes."""
    sum_so_far, total = 0.0, profile.seconds
    for row in rows:
        sum_so_far += row.seconds
        shares = (f"{100 * part / total:.1f}" if total else "" for part in (row.seconds, sum_so_far))
        yield f"{1e6 * row.seconds:.1f}", *shares, f"{row.bytes / 1e3:.1f}"
