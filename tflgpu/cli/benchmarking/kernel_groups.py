"""The kernels of a profile by their type, and the slowest of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from tflgpu.cli.tables import kernel_table
from tflgpu.cli.terminal.listing import Listing
from tflgpu.report.profile import KernelTime, Profile

# Rows of the slowest kernels, as TFLite's benchmark_model prints them.
TOP = 10


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
    """The three tables of TFLite's benchmark_model: in the order of a run, the slowest kernels, and by type."""
    return kernel_table(profile), _slowest_table(profile), _node_type_table(profile)


def _slowest_table(profile: Profile) -> Table:
    """The slowest kernels. #: their place in the run's order."""
    numbers = ("#", "us", "%", "cdf%", "kB")
    result = Listing("#", "node type", *numbers[1:], right=numbers, title="top by computation time")
    ranked = sorted(enumerate(profile.kernels), key=lambda k: -k[1].seconds)
    sum_so_far = 0.0
    for number, kernel in ranked[:TOP]:
        sum_so_far += kernel.seconds
        times = _times(kernel.seconds, sum_so_far, profile.seconds)
        result.add_row(str(number), escape(kernel.title), *times, f"{kernel.bytes / 1e3:.1f}")
    return result


def _node_type_table(profile: Profile) -> Table:
    """One row for each type of kernels."""
    numbers = ("count", "us", "%", "cdf%", "kB")
    result = Listing("node type", *numbers, right=numbers, title="summary by node type")
    sum_so_far = 0.0
    for each in node_types(profile.kernels):
        sum_so_far += each.seconds
        times = _times(each.seconds, sum_so_far, profile.seconds)
        result.add_row(escape(each.node_type), str(each.count), *times, f"{each.bytes / 1e3:.1f}")
    return result


def _times(seconds: float, sum_so_far: float, total: float) -> tuple[str, ...]:
    """Microseconds, and the parts of the total that they and all before them are."""
    shares = (f"{100 * part / total:.1f}" if total else "" for part in (seconds, sum_so_far))
    return f"{1e6 * seconds:.1f}", *shares
