"""Chooses the storage of a model's tensors by running it on calibration inputs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.artifact.artifact import Artifact
from tflgpu.artifact.cache import Cache
from tflgpu.compiler import Parts, Plans, make_plans
from tflgpu.frontend.partition import Partition
from tflgpu.graph.ir import Graph, TensorId
from tflgpu.measure.mixed_precision.generated_inputs import generated_inputs, normalizations, scales
from tflgpu.measure.mixed_precision.probe import Place, Probe
from tflgpu.measure.mixed_precision.storage_search import (
    Errors,
    OutputErrors,
    Sensitivities,
    fewest_kept,
    sensitivities,
)
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.passes.half_precision import keep_measured
from tflgpu.plan.plan import traffic
from tflgpu.report.half_precision import KeptTensor, MixedPrecision
from tflgpu.report.profile import Stopwatch
from tflgpu.runtime.device_memory import DeviceMemory
from tflgpu.runtime.input_check import InputCheck, Inputs
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.opencl.session import Session
from tflgpu.target import DEVICE_ELEMENTS, Target

Array = NDArray[Any]

LOGGER = logging.getLogger(__name__)

# Parts of the tolerance, since inputs that calibration did not see have larger errors: what is expected of all rounding
# together, what it may be on the calibration inputs, and what the plan may be off by before calibration gets stricter.
EXPECTED, MEASURED, PASSING = 1 / 3, 1 / 2, 0.6
STRICTER = 0.5
ATTEMPTS = 3

SECONDS = 15.0  # for runs with one tensor, or a group of them, in half
MOST_RUNS = 600  # of these
# A mixture has to save this part of the bytes that the plan in float moves. On an H200 pose_landmark_lite with 86 of 90
# tensors in float took 369 us, in fp32 362; yolox_nano with 99 of 118 513 us, in fp32 514.
LEAST_SAVED = 0.1


@dataclass(frozen=True)
class _Mixture:
    """Parts with tensors marked as precise: ``kept``, by their places. error: the largest of its outputs.

    fp32_reason: of :class:`MixedPrecision`; then all tensors are kept, and none is marked.
    """

    parts: Parts
    kept: frozenset[int]
    error: float
    fp32_reason: str = ""


@dataclass(frozen=True)
class _Experiment:
    """An experiment that tells how far the outputs of a mixture are off.

    probe: runs any mixture. errors: of its outputs for ``inputs``. in_float: plans of the answers.
    """

    parts: Parts
    target: Target
    probe: Probe
    inputs: Sequence[Sequence[Array]]
    errors: OutputErrors
    in_float: Plans

    def measure(self, kept: frozenset[int], numbers: Sequence[int]) -> Errors:
        """Return what :data:`Measure` says."""
        places = self.probe.together(self.probe.places[n] for n in kept)
        return np.array([self.errors.of(n, self.probe.run(self.inputs[n], places)) for n in numbers])

    def sensitivities(self, seconds: float) -> Sensitivities:
        """Return the sensitivities of all tensors, one by one or in groups, as the time allows."""
        tensors, sets = len(self.probe.places), len(self.inputs)
        LOGGER.info("looking for the tensors that stay in float among %d, on %d inputs", tensors, sets)
        begin = time.perf_counter()
        self.measure(frozenset(), range(sets))
        runs = int(seconds * sets / (time.perf_counter() - begin))
        return sensitivities(self.measure, tensors, sets, min(runs, MOST_RUNS))

    def listed(self, kept: Collection[int], found: Sensitivities) -> tuple[KeptTensor, ...]:
        """Return the most sensitive first."""
        errors = {n: float(e) for group, e in zip(found.groups, found.largest, strict=True) for n in group}
        places, operators = self.probe.places, self.probe.operators
        order = sorted(kept, key=lambda n: (-errors[n], n))
        return tuple(KeptTensor(self.probe.name(places[n]), operators[places[n]], errors[n]) for n in order)


class Calibrator:
    """See :class:`tflgpu.Options`, ``tolerance``: what :func:`tflgpu.compiler.compile_model` asks."""

    def __init__(
        self,
        tolerance: float,
        given: Sequence[Inputs],
        session: Session,
        cache: Cache | None,
        trial_timeout: float | None,
        *,
        scales: Sequence[int] | None = None,
        seconds: float = SECONDS,
    ) -> None:
        """given: the caller's sets of inputs. cache: where programs are kept. scales: of the sets, by default one.
        seconds: for runs with one tensor, or a group of them, in half."""
        self._tolerance, self._given, self._session = tolerance, given, session
        self._cache, self._trial_timeout = cache, trial_timeout
        self._scales, self._seconds = scales, seconds

    def __call__(self, parts: Parts, target: Target) -> tuple[Parts, Target]:
        """Return the parts with tensors that are to stay in float marked as precise, or the target for all of them in
        float.

        Raises BuildError, DeviceError, and TypeError or ValueError for inputs that do not fit the model.
        """
        start = time.perf_counter()
        experiment, is_given = self._prepared(parts, replace(target, executor="launch"))
        found = experiment.sensitivities(self._seconds)
        mixture = self._chosen(experiment, found)
        if mixture.fp32_reason:
            target = replace(target, storage="float")
        report = MixedPrecision(
            self._tolerance,
            inputs=len(experiment.inputs),
            generated=not is_given,
            tensors=len(experiment.probe.places),
            half_error=found.half,
            error=mixture.error,
            kept=experiment.listed(mixture.kept, found),
            fp32_reason=mixture.fp32_reason,
            seconds=time.perf_counter() - start,
        )
        return replace(mixture.parts, mixed=report), target

    def _prepared(self, parts: Parts, target: Target) -> tuple[_Experiment, bool]:
        """Return the experiment with a model's launches, and whether its inputs are the caller's."""
        outer, inner = ([info for _, info in side] for side in parts.frontend.interface())
        given = self._fitting(outer)
        declared = normalizations(parts.data, len(outer))
        inputs = given or generated_inputs(outer, declared)
        probe = Probe(parts, target, self._session, self._trial_timeout)
        in_float = make_plans(parts.graphs, replace(target, storage="float"), Stopwatch())
        answers = self._answers(probe, parts.artifact(in_float), inputs)
        of_given = self._scales if self._scales is not None else [0] * len(inputs)
        errors = OutputErrors(inner, answers, of_given if given else scales(declared))
        return _Experiment(parts, target, probe, inputs, errors, in_float), bool(given)

    def _chosen(self, experiment: _Experiment, found: Sensitivities) -> _Mixture:
        """Return the fewest tensors in float whose plan passes; all of them, where that gains nothing or none
        passes."""
        parts, probe, inputs, errors = experiment.parts, experiment.probe, experiment.inputs, experiment.errors
        reason = ""
        for attempt in range(ATTEMPTS):
            tolerance = self._tolerance * STRICTER**attempt
            kept = fewest_kept(experiment.measure, found, len(inputs), EXPECTED * tolerance, MEASURED * tolerance)
            mixed = _with_kept(parts, probe.together(probe.places[n] for n in kept), inputs=attempt > 0)
            plans = make_plans(mixed.graphs, experiment.target, Stopwatch())
            if kept and _gains_nothing(plans, experiment.in_float):
                reason = f"{len(kept)} have to and the others gain nothing"
                break
            results = self._run(mixed.artifact(plans), inputs)
            error = max((float(errors.of(n, r).max(initial=0.0)) for n, r in enumerate(results)), default=0.0)
            LOGGER.info("with %d tensors in float outputs are off by %.2g of their range", len(kept), error)
            if error <= PASSING * self._tolerance:
                return _Mixture(mixed, kept, error)
            reason = f"with {len(kept)} outputs are off by {error:.2g}"
        return _Mixture(parts, frozenset(range(len(probe.places))), 0.0, reason)

    def _fitting(self, infos: Sequence[TensorInfo]) -> list[list[Array]]:
        """Return the caller's inputs, those left out that have other sizes of free axes."""
        check, queue = InputCheck(infos, self._session), self._session.queue
        sets = [[v.read(queue) if isinstance(v, DeviceMemory) else v for v in check.values(g)] for g in self._given]
        return [values for values in sets if [v.shape for v in values] == [info.shape for info in infos]]

    def _answers(self, probe: Probe, artifact: Artifact, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Return what the plan in float gives; the probe has another one where nodes are fused, and for quantized
        layers."""
        if [piece.source for piece in artifact.pieces] == [piece.source for piece in probe.artifact.pieces]:
            return [probe.run(each) for each in inputs]
        return self._run(artifact, inputs)

    def _run(self, artifact: Artifact, inputs: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Return the outputs for each set of inputs."""
        instance = Instance(artifact, self._session, Stopwatch(), self._cache, self._trial_timeout)
        results = []
        for each in inputs:
            instance.reset_state()
            results.append(instance.run(each, {}))
        if self._cache is not None:  # where the model itself will find them
            instance.keep_binaries(self._cache, Stopwatch())
        return results


def _with_kept(parts: Parts, places: Collection[Place], *, inputs: bool) -> Parts:
    """Return the parts with these tensors and constants marked as precise.

    inputs: whether floats that enter a graph are so, too. Matrix units round these, for which no place stands.
    """
    graphs: dict[Partition, tuple[Graph, ...]] = {}
    piece = 0
    for partition, each in parts.graphs.items():
        marked: list[Graph] = []
        for graph in each:
            kept = {t for p in places if p.piece == piece for t in _tensors(graph, p)}
            if inputs:
                kept |= {t for t in graph.inputs if graph[t].dtype not in DEVICE_ELEMENTS}
            marked.append(keep_measured(graph, kept))
            piece += 1
        graphs[partition] = tuple(marked)
    return replace(parts, graphs=graphs)


def _tensors(graph: Graph, place: Place) -> Iterator[TensorId]:
    """Yield the tensors at a place, in the graph before a plan's conversions."""
    if not place.constants:
        yield from (t for t in (place.tensor,) if t in graph.tensors)
    elif place.tensor in graph.producer:
        yield from (t for t in graph.producer[place.tensor].inputs if graph[t].is_constant)


def _gains_nothing(mixed: Plans, in_float: Plans) -> bool:
    """Whether mixed precision launches no fewer kernels than the plan in float and moves about the same bytes."""
    (kernels, moved), (kernels_in_float, moved_in_float) = _size(mixed), _size(in_float)
    return kernels >= kernels_in_float and moved > (1 - LEAST_SAVED) * moved_in_float


def _size(plans: Plans) -> tuple[int, int]:
    """Kernels, and the bytes that they move."""
    every = [(plan, kernel) for each in plans.values() for plan in each for kernel in plan.kernels]
    return len(every), sum(traffic(plan, kernel) for plan, kernel in every)
