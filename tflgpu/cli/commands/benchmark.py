"""``tflgpu benchmark``."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from rich.filesize import decimal
from rich.markup import escape

import tflgpu
from tflgpu.api import CompiledModel
from tflgpu.cli.arguments import AsJson, ModelPath, with_compile_options
from tflgpu.cli.commands.devices import device_facts
from tflgpu.cli.console import console, print_json, table
from tflgpu.cli.tables import is_cold, kernel_table, kernels_as_list, start_table
from tflgpu.cli.timing import Latency, measure, seconds_of
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.inputs import random_input
from tflgpu.report.profile import Profile


@dataclass(frozen=True)
class Result:
    """What was measured: seconds of the first run, then of all others."""

    first: float
    tflgpu: Latency
    litert: Latency | None
    profile: Profile | None

    @property
    def ratio(self) -> float | None:
        """LiteRT's median over tflgpu's: above 1 tflgpu is the faster."""
        return self.litert.median / self.tflgpu.median if self.litert else None


@with_compile_options
def benchmark_model(
    model: ModelPath,
    options: tflgpu.Options,
    runs: Annotated[int, typer.Option(min=1, help="Measure at least so many runs.")] = 50,
    min_seconds: Annotated[float, typer.Option(min=0, help="Measure for at least so long.")] = 1.0,
    profile: Annotated[bool, typer.Option("--profile", help="Add device time and rate of every kernel.")] = False,
    litert: Annotated[
        bool, typer.Option("--litert", help="Measure LiteRT's CPU interpreter in turns with tflgpu.")
    ] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of LiteRT.", show_default="all cores")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how long a model takes to start and to run on random inputs, host array to host array.

    It starts twice: compiled into an empty cache, then from there. With --cache-dir or --cache it starts once, as that
    cache has it.

    Drivers keep compiled programs of their own: CUDA_CACHE_DISABLE=1 and POCL_KERNEL_CACHE=0 in the environment make a
    start cold.
    """
    if threads is not None and not litert:
        raise ValueError("--threads is about LiteRT; give --litert too")
    starts = (
        [tflgpu.compile(model, options)]
        if options.cache_dir is not None or options.cache != "readwrite"
        else _cold_and_warm(model, options)
    )
    with starts[-1] as compiled:
        rival = LiteRT(model.read_bytes(), threads or os.cpu_count()) if litert else None
        result = _measure(compiled, rival, runs, min_seconds, profile)
    if as_json:
        print_json({"model": model} | _as_dict(compiled, starts, rival, result))
    else:
        console.print(f"[bold]{escape(model.name)}[/] on {escape(str(compiled.device.name))}, {compiled.precision}")
        _print(compiled, starts, rival, result)


def _cold_and_warm(model: Path, options: tflgpu.Options) -> list[CompiledModel]:
    """The model compiled into an empty cache, closed, and started from there."""
    with TemporaryDirectory(prefix="tflgpu-benchmark-") as folder:
        options = replace(options, cache_dir=folder)
        with tflgpu.compile(model, options) as cold:
            pass
        return [cold, tflgpu.compile(model, options)]


def _measure(compiled: CompiledModel, rival: LiteRT | None, runs: int, min_seconds: float, profile: bool) -> Result:
    generator = np.random.default_rng(0)
    inputs = [random_input(info, generator) for info in compiled.inputs]
    engines: dict[str, Callable[[], object]] = {"tflgpu": lambda: compiled.run(inputs)}
    if rival is not None:
        engines["litert"] = lambda: rival.run(inputs)
    first = seconds_of(engines["tflgpu"])
    latency = measure(engines, runs, min_seconds)
    return Result(first, latency["tflgpu"], latency.get("litert"), compiled.profile(inputs) if profile else None)


def _as_dict(
    compiled: CompiledModel, starts: list[CompiledModel], rival: LiteRT | None, result: Result
) -> dict[str, Any]:
    report = compiled.report
    seconds = {is_cold(start): dict(start.seconds) for start in starts}
    return {
        "device": device_facts(compiled.device),
        "precision": compiled.precision,
        "init_seconds": {"cold": seconds.get(True), "warm": seconds.get(False)},
        "first_seconds": result.first,
        "tflgpu_seconds": asdict(result.tflgpu),
        "litert": {"version": rival.version, "threads": rival.threads} if rival else None,
        "litert_seconds": asdict(result.litert) if result.litert else None,
        "litert_over_tflgpu": result.ratio,
        "memory_bytes": {
            "arena": report.arena_bytes,
            "arena_lower_bound": report.arena_lower_bound,
            "constants": report.constant_bytes,
        },
        "kernels": kernels_as_list(result.profile) if result.profile else None,
    }


def _print(compiled: CompiledModel, starts: list[CompiledModel], rival: LiteRT | None, result: Result) -> None:
    console.print("", start_table(*starts), "", sep="\n")
    columns = ("first", "median", "p10", "p90", "runs")
    latency = table("engine", *columns, right=columns, title="one run, ms")
    latency.add_row("tflgpu", f"{1e3 * result.first:.3f}", *_cells(result.tflgpu), style="bold")
    if rival and result.litert:
        latency.add_row(f"{rival.name}, threads: {rival.threads}", "", *_cells(result.litert))
    console.print(latency)
    if result.ratio is not None:
        word, factor = ("faster", result.ratio) if result.ratio >= 1 else ("slower", 1 / result.ratio)
        console.print(f"tflgpu is [bold]{factor:.2f} times {word}[/] than LiteRT (medians, measured in turns)")

    report = compiled.report
    arena, bound, constants = (
        decimal(size or 0) for size in (report.arena_bytes, report.arena_lower_bound, report.constant_bytes)
    )
    console.print(f"\nmemory: {arena} of activations (lower bound {bound}), {constants} of constants")
    if result.profile:
        console.print("", kernel_table(result.profile), sep="\n")


def _cells(latency: Latency) -> tuple[str, ...]:
    return *(f"{1e3 * s:.3f}" for s in (latency.median, latency.p10, latency.p90)), str(latency.runs)
