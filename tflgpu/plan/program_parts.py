"""Parts of a program that are compiled alone, where a model has more functions than one part should have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

# Functions that one part may have, and how many each has at most if they are more. A compiler takes a time that grows
# faster than the number of functions of a kernel, and parts are compiled at the same time, but several persistent
# kernels take a launch each: see docs/internals/measurements/compiling.md.
MANY_FUNCTIONS, OF_EACH = 40, 25

# How many functions all kernels have together, by the number of different ones. Each is compiled once for each kernel
# that has it.
COPIES = 1.5

# Intervals for which a kernel is launched that has their functions, as long as copies of these are allowed: where a new
# kernel would have to take the copies, and where the one that runs has room for them.
WORTH_A_LAUNCH = (4, 8)

# How many intervals are looked at to choose a kernel.
FAR = 200

# The most intervals of a program whose functions are divided evenly among its kernels; the search is quadratic.
BALANCED = 2000

Functions = frozenset[str]


class Run(NamedTuple):
    """One launch of a persistent kernel: its number, and the places of the launches that it runs."""

    kernel: int
    places: range


def find_runs(intervals: Sequence[Sequence[str]]) -> list[Run]:
    """Return persistent kernels by number, and what they run: as few kernels as possible, of about equal numbers of
    functions.

    Layers that repeat are runs of the same kernels. Runs end between intervals, if that takes not too many copies of
    functions.

    Args:
        intervals: The functions of the launches of each barrier interval.
    """
    different = len({function for interval in intervals for function in interval})
    if different <= MANY_FUNCTIONS:
        return [Run(0, range(sum(map(len, intervals))))]
    found = _runs(intervals, OF_EACH)
    kernels = _kernels(found)
    for most in range(-(-different // kernels), OF_EACH if len(intervals) <= BALANCED else 0):
        smaller = _runs(intervals, most)
        if _kernels(smaller) <= kernels and len(smaller) <= len(found):
            return smaller
    return found


def find_parts(sizes: Sequence[int]) -> list[int]:
    """Return the part of the program that each kernel is compiled in: as few parts as possible, of about equal length.

    Args:
        sizes: How long the text of each kernel is.
    """
    if len(sizes) <= MANY_FUNCTIONS:
        return [0] * len(sizes)
    parts, taken = list[int](), [0] * -(-len(sizes) // OF_EACH)
    for size in sizes:
        parts.append(taken.index(min(taken)))
        taken[parts[-1]] += size
    return parts


def _kernels(runs: Sequence[Run]) -> int:
    return 1 + max(run.kernel for run in runs)


def _runs(intervals: Sequence[Sequence[str]], most: int) -> list[Run]:
    """Return the runs of kernels of ``most`` functions each, if no interval has more."""
    needed = [frozenset(interval) for interval in intervals]
    kernels, chosen = list[set[str]](), list[int]()  # the functions of each; the kernel of each launch
    copies = int((COPIES - 1) * len(frozenset[str]().union(*needed)))
    for number, functions in enumerate(needed):
        kernel = _chosen(kernels, chosen, needed[number : number + FAR], most, copies)
        if kernel is not None:
            kernels[kernel] |= functions
            chosen += [kernel] * len(intervals[number])
            continue
        for function in intervals[number]:  # more copies would be too many, so each where it is
            single = _chosen(kernels, chosen, [frozenset({function})], most, copies)
            assert single is not None, "a function that no kernel has is no copy"
            kernels[single].add(function)
            chosen.append(single)
    numbered = groupby(range(len(chosen)), key=chosen.__getitem__)
    return [Run(kernel, range((places := list(own))[0], places[-1] + 1)) for kernel, own in numbered]


def _chosen(
    kernels: list[set[str]], chosen: Sequence[int], following: Sequence[Functions], most: int, copies: int
) -> int | None:
    """Return the kernel for the first of the ``following`` intervals, which may be a new one; None if it has to be
    split.

    chosen: the kernels of the launches before. copies: how many functions more than there are all kernels may have.
    """
    functions = following[0]
    if chosen and functions <= kernels[chosen[-1]]:
        return chosen[-1]
    reach, kernel = max(((_reach(k, following), i) for i, k in enumerate(kernels)), default=(0, 0))
    known = set[str]().union(*kernels)
    may_copy = functions.isdisjoint(known) or sum(map(len, kernels)) - len(known) + len(functions & known) <= copies
    has_room = bool(chosen) and len(kernels[chosen[-1]] | functions) <= most
    if reach >= (WORTH_A_LAUNCH[has_room] if may_copy else 1):
        return kernel
    if not may_copy:
        return None
    if not has_room:
        kernels.append(set())
        return len(kernels) - 1
    return chosen[-1]


def _reach(kernel: set[str], following: Iterable[Functions]) -> int:
    """How many intervals follow of which the kernel has all functions."""
    return sum(1 for _ in takewhile(kernel.issuperset, following))
