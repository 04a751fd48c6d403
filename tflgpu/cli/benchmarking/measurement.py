"""A model's start and its runs, measured as TFLite's benchmark_model does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tflgpu
from tflgpu.api import CompiledModel
from tflgpu.cli.benchmarking.footprint import peak_resident_bytes
from tflgpu.cli.benchmarking.start import Start, random_inputs, start, start_and_close
from tflgpu.cli.processes import in_own_process
from tflgpu.cli.timing import Latency, measure, repeat
from tflgpu.evaluate.litert_peer import LiteRT, require_litert
from tflgpu.report.profile import Profile


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
