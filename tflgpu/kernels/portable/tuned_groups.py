"""Kernels of launches with work-groups of other sizes, for the tuner to measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tflgpu.kernels.candidates import AnyTile, AnyWork, Candidate
from tflgpu.kernels.request import Request
from tflgpu.target import Target

SIZES = (64, 256)


def choose_with_group(
    request: Request, candidates: Callable[[Target], Sequence[Candidate[AnyTile, AnyWork]]]
) -> tuple[Candidate[AnyTile, AnyWork], Target]:
    """One of the candidates, and the target with the work-groups that it is for.

    After those for the usual groups comes the best one for each other size: the cost model knows nothing of what
    several groups of a compute unit do at once. A persistent kernel has one size of groups for all.
    """
    usual = request.target
    found = {candidate.tile.config: (candidate, usual) for candidate in candidates(usual)}
    for size in SIZES if usual.executor == "launch" else ():
        target = replace(usual, group=size)
        if target.local_size == size != usual.local_size:
            best = candidates(target)[0]
            found[(*best.tile.config, size)] = best, target
    return found[request.choose(list(found))]
