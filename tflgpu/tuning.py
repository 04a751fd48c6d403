"""Parameters of kernels by measuring: see :class:`tflgpu.Options`, ``tuning``.

A candidate is measured where it will run: the whole graph is planned, built and profiled with the first choice of every
kernel, then with the second and so on. So neighbours, caches and executor are those of the real thing, and equal nodes
are measured at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from tflgpu.build import build
from tflgpu.cache import Cache
from tflgpu.compiler import assemble
from tflgpu.ir import Graph, TensorId
from tflgpu.ops.kernel import Choice, Chooser, Request
from tflgpu.plan import Plan, make_plan
from tflgpu.runtime.executor import LaunchExecutor
from tflgpu.runtime.persistent import PersistentExecutor
from tflgpu.runtime.session import Session
from tflgpu.serializer import load_choice, store_choice, tuning_key
from tflgpu.target import Target

# Candidates of a kernel that "fast" measures, the first of which it would have without measuring.
FEW = 3
RUNS = 7
# What a candidate's time must be of the first one's to be preferred: less is noise.
WORTHWHILE = 0.97

Candidates = dict[str, Sequence[Choice]]  # by Request.signature


class DeviceTuner:
    """Measures on the device of ``session``. Remembers what it found, and so does ``cache``."""

    def __init__(self, session: Session, effort: Literal["fast", "exhaustive"], cache: Cache | None = None) -> None:
        self._session, self._effort, self._cache = session, effort, cache
        self._best: dict[str, Choice] = {}

    def __call__(self, graph: Graph, target: Target) -> Chooser:
        """What chooses for the nodes of ``graph``. Raises BuildError and DeviceError."""
        survey = _Trial({}, 0)
        make_plan(graph, target, survey)
        unknown = {s: ranked for s, ranked in survey.candidates.items() if not self._is_known(s, ranked)}
        if self._effort == "fast":
            unknown = {s: ranked[:FEW] for s, ranked in unknown.items()}
        for signature, choice in best_choices(unknown, self._measure(graph, target, unknown)).items():
            self._best[signature] = choice
            if self._cache is not None:
                store_choice(self._cache, tuning_key(signature, self._effort, self._session.device), choice)
        return lambda request, ranked: self._best.get(request.signature, ranked[0])

    def _is_known(self, signature: str, ranked: Sequence[Choice]) -> bool:
        """Whether this kernel needs no measurement, because it was measured before or there is nothing to choose."""
        if signature not in self._best and self._cache is not None and len(ranked) > 1:
            choice = load_choice(self._cache, tuning_key(signature, self._effort, self._session.device))
            if choice is not None and choice in ranked:
                self._best[signature] = choice
        return signature in self._best or len(ranked) == 1

    def _measure(self, graph: Graph, target: Target, candidates: Candidates) -> dict[str, list[float]]:
        """Seconds of each candidate, in their order; of equal nodes the sum."""
        times: dict[str, list[float]] = {signature: [] for signature in candidates}
        for rank in range(max(map(len, candidates.values()), default=0)):
            trial = _Trial(candidates, rank)
            plan = make_plan(graph, target, trial)
            seconds = self._profile(plan)
            for signature, ranked in candidates.items():
                if rank < len(ranked):
                    nodes = trial.nodes[signature]
                    times[signature].append(
                        sum(s for s, k in zip(seconds, plan.kernels, strict=True) if k.node.output in nodes)
                    )
        return times

    def _profile(self, plan: Plan) -> list[float]:
        """Seconds of each kernel, on zeros."""
        if not plan.target.ptx:  # without a clock a persistent kernel cannot be looked into
            plan = replace(plan, target=replace(plan.target, executor="launch"))
        text, executable = assemble(plan)
        program, _ = build(text, self._session)
        kind = PersistentExecutor if executable.persistent else LaunchExecutor
        executor = kind(executable, program, self._session)
        return executor.profile([np.zeros(port.shape, port.dtype) for port in executable.inputs], RUNS)


def best_choices(candidates: Candidates, times: dict[str, list[float]]) -> dict[str, Choice]:
    """The fastest candidate of each kernel; the first one, unless another is faster by more than noise."""
    best = {}
    for signature, ranked in candidates.items():
        seconds = times[signature]
        fastest = int(np.argmin(seconds))
        best[signature] = ranked[fastest if seconds[fastest] < WORTHWHILE * seconds[0] else 0]
    return best


class _Trial:
    """A chooser that takes the candidate of a given rank where there is one, and notes who asked.

    candidates: of every kernel that asked, by its signature. nodes: the outputs of the nodes that have it.
    """

    def __init__(self, tried: Candidates, rank: int) -> None:
        self._tried, self._rank = tried, rank
        self.candidates: Candidates = {}
        self.nodes: dict[str, set[TensorId]] = {}

    def __call__(self, request: Request, ranked: Sequence[Choice]) -> Choice:
        signature = request.signature
        self.candidates[signature] = ranked
        self.nodes.setdefault(signature, set()).add(request.node.output)
        tried = self._tried.get(signature, ranked)
        return tried[self._rank] if signature in self._tried and self._rank < len(tried) else ranked[0]
