"""Parts of a program that are compiled alone, where a model has more functions than one part should have."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice, takewhile
from typing import NamedTuple

# Functions that one part may have, and how many each has at most if they are more. A compiler takes a time that grows
# faster than the number of functions of a kernel, and parts are compiled at the same time, but several persistent
# kernels take a launch each: see docs/internals/measurements/compiling.md.
MANY_FUNCTIONS, OF_EACH = 40, 25

# How many functions all kernels have together, by the number of different ones. Each is compiled once for each kernel
# that has it.
COPIES = 1.5

# Intervals that are worth a launch of a kernel that has their functions, as long as copies of these are allowed.
WORTH_A_LAUNCH = 8

# How many intervals are looked at to choose a kernel.
FAR = 200

Functions = frozenset[str]


class Run(NamedTuple):
    """One launch of a kernel: its number, and the intervals that it runs."""

    kernel: int
    intervals: range


def find_runs(intervals: Sequence[Functions]) -> list[Run]:
    """Persistent kernels by number, and what they run: one, or as few as can be, with about as many functions each.

    Layers that repeat are runs of the same kernels.

    Args:
        intervals: The functions of each barrier interval.
    """
    different = len(frozenset[str]().union(*intervals))
    if different <= MANY_FUNCTIONS:
        return [Run(0, range(len(intervals)))]
    found = _runs(intervals, OF_EACH)
    kernels = _kernels(found)
    for most in range(-(-different // kernels), OF_EACH):
        smaller = _runs(intervals, most)
        if _kernels(smaller) <= kernels and len(smaller) <= len(found):
            return smaller
    return found


def find_parts(sizes: Sequence[int]) -> list[int]:
    """The part of each kernel, if every launch is one: as many parts as are needed, with about as much text each.

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


def _runs(intervals: Sequence[Functions], most: int) -> list[Run]:
    """The runs of kernels of ``most`` functions each, if no interval has more."""
    kernels, chosen, copies = list[set[str]](), list[int](), COPIES * len(frozenset[str]().union(*intervals))
    for number, functions in enumerate(intervals):
        current = chosen[-1] if chosen else -1
        if not chosen or not functions <= kernels[current]:
            reach, kernel = max(((_reach(k, intervals, number), i) for i, k in enumerate(kernels)), default=(0, 0))
            may_copy = sum(map(len, kernels)) + len(functions) <= copies
            if reach >= (WORTH_A_LAUNCH if may_copy else 1):
                current = kernel
            elif not chosen or len(kernels[current] | functions) > most:
                kernels.append(set())
                current = len(kernels) - 1
            kernels[current] |= functions
        chosen.append(current)
    numbered = groupby(range(len(intervals)), key=chosen.__getitem__)
    return [Run(kernel, range((places := list(own))[0], places[-1] + 1)) for kernel, own in numbered]


def _reach(kernel: set[str], intervals: Sequence[Functions], begin: int) -> int:
    """The number of intervals from ``begin`` on of which the kernel has all functions, of the next FAR at most."""
    following = islice(intervals, begin, begin + FAR)
    return sum(1 for _ in takewhile(kernel.issuperset, following))
