"""Parameters of kernels by measuring: see :class:`tflgpu.Options`, ``tuning``.

A candidate is measured where it will run: the whole graph is planned, built and profiled with the second choice of
every kernel, then with the third and so on, each time beside the first. So neighbours, caches and executor are those of
the real thing, equal nodes are measured at once, and a machine that has become busy is so for both.

Fusions come first, by the same rule: a fused node has two candidates, one kernel and those of the nodes in its place.
Tiles are then measured for the kernels that are left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tflgpu.artifact.cache import Cache
from tflgpu.artifact.serializer import load_choice, store_choice, tuning_key
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.codegen.whole_kernels import assemble
from tflgpu.graph.ir import Graph, TensorId
from tflgpu.kernels.candidates import TileConfig
from tflgpu.kernels.request import Chooser, Request
from tflgpu.plan import Plan, make_plan
from tflgpu.runtime.executors.executor import Executor
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.executors.persistent_executor import PersistentExecutor
from tflgpu.runtime.opencl.build import WideGroupsError, build, check_groups
from tflgpu.runtime.opencl.session import Session
from tflgpu.target import Target

LOGGER = logging.getLogger(__name__)

# Candidates of a kernel that "fast" measures, the first of which it would have without measuring.
FEW = 3

RUNS = 7

TICK = 1e-9  # seconds; a device's clock may not see a small kernel at all

# Another configuration is preferred only if it takes less than this share of the first one's time: a smaller gain may
# be noise.
WORTHWHILE = 0.97

Candidates = dict[str, Sequence[TileConfig]]  # by Request.signature
Seconds = NDArray[np.float64]


class DeviceTuner:
    """Measures on the device of ``session``. Remembers what it found, and so does ``cache``."""

    def __init__(self, session: Session, effort: Literal["fast", "exhaustive"], cache: Cache | None = None) -> None:
        self._session, self._effort, self._cache = session, effort, cache
        self._best: dict[str, TileConfig] = {}
        self._group_sizes: dict[str, int] = {}  # of Target, found here

    def __call__(self, graph: Graph, target: Target) -> Chooser:
        """Return what chooses for the nodes of ``graph``. Raises BuildError and DeviceError."""
        for fusions in (True, False):
            self._decide(graph, target, fusions)
        return self._choose

    def _decide(self, graph: Graph, target: Target, fusions: bool) -> None:
        """Measure the fusions, or the tiles, that are not known. Raises BuildError and DeviceError."""
        survey = _Trial(self._choose, fusions, {}, 0)
        make_plan(graph, replace(target, group_sizes=()), survey)  # what is planned anew is not tuned
        unknown = {s: ranked for s, ranked in survey.candidates.items() if not self._is_known(s, ranked)}
        if self._effort == "fast":
            unknown = {s: ranked[:FEW] for s, ranked in unknown.items()}
        times = self._measure(graph, target, fusions, unknown) if unknown else {}
        for signature, choice in best_choices(unknown, times).items():
            self._best[signature] = choice
            if self._cache is not None:
                store_choice(self._cache, tuning_key(signature, self._effort, self._session.device.identity), choice)

    def _choose(self, request: Request, ranked: Sequence[TileConfig]) -> TileConfig:
        best = self._best.get(request.signature, ranked[0])
        return best if best in ranked else ranked[0]

    def _is_known(self, signature: str, ranked: Sequence[TileConfig]) -> bool:
        """Whether this kernel needs no measurement, because it was measured before or there is nothing to choose."""
        if signature not in self._best and self._cache is not None and len(ranked) > 1:
            choice = load_choice(self._cache, tuning_key(signature, self._effort, self._session.device.identity))
            if choice is not None and choice in ranked:
                self._best[signature] = choice
        return signature in self._best or len(ranked) == 1

    def _measure(self, graph: Graph, target: Target, fusions: bool, candidates: Candidates) -> dict[str, list[float]]:
        """Return times of all candidates, in their order and with the first one's as the unit; of equal nodes
        together."""
        times = {signature: [1.0] for signature in candidates}
        trial = _Trial(self._choose, fusions, candidates, 0)
        plan, first = self._opened(graph, target, trial)
        ranks = max(map(len, candidates.values()))
        for rank in range(1, ranks):
            asked = "fusions" if fusions else "kernels"
            LOGGER.info("measuring candidate %d of %d for %d %s", rank + 1, ranks, len(candidates), asked)
            known = len(self._group_sizes)
            trial_plan, other = self._opened(graph, target, _Trial(self._choose, fusions, candidates, rank))
            if len(self._group_sizes) > known:  # the first plan may be another one now
                return self._measure(graph, target, fusions, candidates)
            before, now = in_turns((first, other), until_next if fusions else lasting)
            for signature, ranked in candidates.items():
                if rank < len(ranked):
                    nodes = trial.nodes[signature]
                    times[signature].append(seconds_of(nodes, trial_plan, now) / seconds_of(nodes, plan, before))
        return times

    def _opened(self, graph: Graph, target: Target, chooser: Chooser) -> tuple[Plan, Executor]:
        """Return a plan, and what runs and profiles it."""
        while True:
            plan = make_plan(graph, target.with_group_sizes(self._group_sizes), chooser)
            try:
                return plan, self._open(plan)
            except WideGroupsError as error:
                self._group_sizes |= error.sizes

    def _open(self, plan: Plan) -> Executor:
        """Return what runs and profiles a plan. Raises WideGroupsError."""
        if not plan.target.ptx:  # without a clock a persistent kernel cannot be looked into
            plan = replace(plan, target=replace(plan.target, executor="launch"))
        source = render(plan)
        text, executable = assemble(source, link(plan, source.names), plan.target)
        program, _ = build(text, self._session)
        check_groups(program, executable, self._session)
        kind = PersistentExecutor if executable.persistent else LaunchExecutor
        return kind(executable, program, self._session)


def lasting(intervals: Seconds) -> Seconds:
    """Return the seconds of each kernel, from its begin to its end.

    Args:
        intervals: A row of begin and end for each kernel, in seconds.
    """
    return intervals[:, 1] - intervals[:, 0]


def until_next(intervals: Seconds) -> Seconds:
    """Return the seconds from the begin of each kernel to that of the next one.

    Of several kernels the next one waits for the one before; a single kernel waits for none.

    Args:
        intervals: A row of begin and end for each kernel, in seconds.
    """
    return np.diff(np.append(intervals[:, 0], intervals[-1, 1]))


def in_turns(executors: Sequence[Executor], seconds: Callable[[Seconds], Seconds] = lasting) -> list[Seconds]:
    """Return the seconds of each kernel of each executor: the least of several runs, as other work only adds to them.

    Args:
        executors: They run in turns, on zeros, and have inputs of the same shapes.
        seconds: Makes seconds of rows of begin and end.
    """
    inputs = [np.zeros(binding.shape, binding.dtype) for binding in executors[0].executable.inputs]
    runs = [[seconds(np.array(executor.profile(inputs, 1))[:, :2]) for executor in executors] for _ in range(RUNS)]
    return [np.min(of_one, axis=0) for of_one in zip(*runs, strict=True)]


def seconds_of(nodes: Collection[TensorId], plan: Plan, seconds: Seconds) -> float:
    """Return the seconds of the kernels that compute some nodes.

    Args:
        nodes: The outputs of these nodes.
        plan: The plan that was run.
        seconds: Those of each kernel of the plan.
    """
    return TICK + sum(float(s) for k, s in zip(plan.kernels, seconds, strict=True) if k.node.output in nodes)


def best_choices(candidates: Candidates, times: dict[str, list[float]]) -> dict[str, TileConfig]:
    """Return the fastest candidate of each kernel; the first one, unless another is faster by more than noise.

    Args:
        candidates: For each kernel's signature its candidates, the best by the cost model first.
        times: For each signature the times of all candidates, with that of the first one as the unit.
    """
    best = {}
    for signature, ranked in candidates.items():
        fastest = int(np.argmin(times[signature]))
        best[signature] = ranked[fastest if times[signature][fastest] < WORTHWHILE else 0]
    return best


class _Trial:
    """A chooser that takes the candidate of a given rank where there is one, and notes which requests asked.

    decided: chooses fusions where these are not tried, and tiles where these are. candidates: of every node that asked,
    by its signature. nodes: the outputs of the nodes that have it, or of those that a fused node takes the place of.
    """

    def __init__(self, decided: Chooser, fusions: bool, tried: Candidates, rank: int) -> None:
        self._decided, self._fusions, self._tried, self._rank = decided, fusions, tried, rank
        self.candidates: Candidates = {}
        self.nodes: dict[str, set[TensorId]] = {}

    def __call__(self, request: Request, ranked: Sequence[TileConfig]) -> TileConfig:
        if bool(request.parts) != self._fusions:
            return self._decided(request, ranked)
        signature = request.signature
        self.candidates[signature] = ranked
        self.nodes.setdefault(signature, set()).update(n.output for n in request.parts or (request.node,))
        tried = self._tried.get(signature, ranked)
        return tried[self._rank] if signature in self._tried and self._rank < len(tried) else ranked[0]
