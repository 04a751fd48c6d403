"""Start of a model and its runs, measured as TFLite's benchmark_model does, also beside other engines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.api import CompiledModel
from tflgpu.cli.own_processes import in_own_process
from tflgpu.cli.tables import start_kind
from tflgpu.evaluate.litert_peer import LiteRT, require_litert
from tflgpu.inputs import random_input
from tflgpu.report.profile import Profile

# Rounds that each engine's runs are dealt out to, so that a machine that slows down or speeds up does so for all.
ROUNDS = 10

PERCENTILES = (5, 10, 50, 90, 95, 99)


@dataclass(frozen=True)
class Latency:
    """Seconds of one run, over ``runs`` runs. std: of all runs, not an estimate from a sample."""

    runs: int
    min: float
    avg: float
    max: float
    std: float
    p5: float
    p10: float
    median: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Latency:
        """Statistics of times, in their unit."""
        spread = min(times), float(np.mean(times)), max(times), float(np.std(times))
        return cls(len(times), *spread, *map(float, np.percentile(times, PERCENTILES)))


def seconds_of(call: Callable[[], object]) -> float:
    """Return the wall time of a call in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def repeat(call: Callable[[], object], runs: int, min_seconds: float, max_seconds: float = inf) -> list[float]:
    """Seconds of each run, of the least number and time; after ``max_seconds`` only a first one begins."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < runs or time.perf_counter() - start < min_seconds:
        if times and time.perf_counter() - start >= max_seconds:
            break
        times.append(seconds_of(call))
    return times


def measure(
    engines: Mapping[str, Callable[[], object]], runs: int, min_seconds: float, max_seconds: float = inf
) -> dict[str, Latency]:
    """Latency of every engine by name, each run at least ``runs`` times and for ``min_seconds``.

    The engines take turns. The first run of a turn is a warm-up and not counted: it pays for the caches and the
    threads that the other engine has left in its own favour. An engine's own runs take ``max_seconds`` in all; two
    runs in each turn it has in any case.
    """
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(ROUNDS):
        for name, call in engines.items():
            call()
            times[name] += repeat(call, ceil(runs / ROUNDS), min_seconds / ROUNDS, max_seconds / ROUNDS)
    return {name: Latency.of(own) for name, own in times.items()}


# The process's own high-water mark on Linux. That of getrusage also counts the process that started this one.
STATUS = Path("/proc/self/status")


def peak_resident_bytes() -> int | None:
    """Return the most memory that this process has had resident; None where the system does not tell."""
    try:
        marks = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
    except OSError:
        marks = []
    if marks:
        return 1024 * int(marks[0].split()[1])
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@dataclass(frozen=True)
class Start:
    """kind: ``"cold"`` if the model was compiled, ``"warm"`` if it came from the cache.

    seconds: what each stage of that took. first: seconds of the first run.

    init_bytes, overall_bytes: how far compiling, and that and the first run, have raised the peak of the process's
    resident memory; None where the system does not tell.
    """

    kind: str
    seconds: Mapping[str, float]
    first: float
    init_bytes: int | None
    overall_bytes: int | None


def start(model: Path, options: tflgpu.Options) -> tuple[CompiledModel, Start]:
    """Return the model, which has run once on :func:`random_inputs`."""
    before = peak_resident_bytes()
    compiled = tflgpu.compile(model, options)
    init = peak_resident_bytes()
    inputs = random_inputs(compiled)
    first = seconds_of(lambda: compiled.run(inputs))
    overall = peak_resident_bytes()
    growth = _growth(before, init), _growth(before, overall)
    return compiled, Start(start_kind(compiled), dict(compiled.seconds), first, *growth)


def start_and_close(model: Path, options: tflgpu.Options) -> Start:
    """For a process of its own, which has opened no device yet."""
    compiled, started = start(model, options)
    compiled.close()
    return started


def random_inputs(compiled: CompiledModel) -> Sequence[NDArray[Any]]:
    """Return the same numbers every time."""
    generator = np.random.default_rng(0)
    return [random_input(info, generator) for info in compiled.inputs]


def _growth(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


@dataclass(frozen=True)
class Duration:
    """How long to warm up and to measure: the least runs and seconds, and no longer than max_seconds each."""

    runs: int
    min_seconds: float
    max_seconds: float
    warmup_runs: int
    warmup_min_seconds: float


@dataclass(frozen=True)
class EngineTimes:
    """Seconds of the first run, of those that warm up, which it belongs to, and of those that count."""

    first: float
    warmup: Latency
    run: Latency

    def as_dict(self) -> dict[str, Any]:
        """Return the times in seconds, as JSON has them."""
        before = {"first": self.first, "warmup_runs": self.warmup.runs, "warmup_avg": self.warmup.avg}
        return before | asdict(self.run)


@dataclass(frozen=True)
class Measurement:
    """model: closed, but what it says of itself stays. starts: the first one is that of the model which has run.

    peak_bytes: the most memory that this process had resident before LiteRT took any.
    """

    model: CompiledModel
    starts: Sequence[Start]
    tflgpu: EngineTimes
    litert: EngineTimes | None
    rival: LiteRT | None
    peak_bytes: int | None
    profile: Profile | None

    @property
    def ratio(self) -> float | None:
        """LiteRT's median over tflgpu's: above 1 tflgpu is the faster."""
        return self.litert.run.median / self.tflgpu.run.median if self.litert else None


def measure_model(
    model: Path, options: tflgpu.Options, duration: Duration, *, threads: int | None, profile: bool
) -> Measurement:
    """threads: of LiteRT, which is measured in turns with tflgpu; None leaves it out."""
    if threads is not None:
        require_litert()  # before anything takes long
    compiled, starts = _starts(model, options)
    with compiled:
        inputs = random_inputs(compiled)
        engines: dict[str, Callable[[], object]] = {"tflgpu": lambda: compiled.run(inputs)}
        warmup = {"tflgpu": _warm_up(engines["tflgpu"], duration, [starts[0].first])}
        peak = peak_resident_bytes()
        rival = None
        if threads is not None:
            rival = LiteRT(model.read_bytes(), threads)
            engines["litert"] = lambda: rival.run(inputs)
            warmup["litert"] = _warm_up(engines["litert"], duration, [])
        runs = measure(engines, duration.runs, duration.min_seconds, duration.max_seconds)
        times = {name: EngineTimes(warmup[name][0], Latency.of(warmup[name]), run) for name, run in runs.items()}
        kernels = compiled.profile(inputs) if profile else None
    return Measurement(compiled, starts, times["tflgpu"], times.get("litert"), rival, peak, kernels)


def _starts(model: Path, options: tflgpu.Options) -> tuple[CompiledModel, list[Start]]:
    """Cold in an empty cache, and warm from there in a new process; only once if the options name a cache."""
    if options.cache_files.path is not None or options.cache != "readwrite":
        compiled, started = start(model, options)
        return compiled, [started]
    with TemporaryDirectory(prefix="tflgpu-benchmark-") as folder:
        options = replace(options, cache_files=replace(options.cache_files, path=folder))
        compiled, cold = start(model, options)
        return compiled, [cold, in_own_process(start_and_close, model, options).value]


def _warm_up(call: Callable[[], object], duration: Duration, done: list[float]) -> list[float]:
    """Seconds of all runs that warm up; ``done``: of those that are over."""
    more = duration.warmup_runs - len(done)
    return done + repeat(call, more, duration.warmup_min_seconds - sum(done), duration.max_seconds)
