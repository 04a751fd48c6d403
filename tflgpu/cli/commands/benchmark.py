"""``tflgpu benchmark``, after TFLite's benchmark_model, whose options have the same names here."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

import tflgpu
from tflgpu.cli.arguments import AsJson, ModelPath, with_options
from tflgpu.cli.commands.devices import device_facts
from tflgpu.cli.console import Listing, console, print_json
from tflgpu.cli.measurement import Duration, Latency, Measurement, Start, measure_model
from tflgpu.cli.progress import progress
from tflgpu.cli.tables import kernels_as_list, node_types, profile_tables, start_table
from tflgpu.report.report import Report

STATISTICS = tuple(f.name for f in fields(Latency))

# Columns that every row has, so that tables of several models can be joined.
FACTS = ("model", "device", "precision")

COLUMNS = (*FACTS, "section", "number", "name", "seconds", "first", "warmup_runs", "warmup_avg", *STATISTICS, "bytes")


def write_csv(found: Mapping[str, Any], file: TextIO) -> None:
    """found: what ``tflgpu benchmark --json`` prints. ``seconds`` of an engine are its average."""
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    facts = {"model": str(found["model"]), "device": found["device"]["name"], "precision": found["precision"]}
    for row in _rows(found):
        writer.writerow(facts | row)


def _rows(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for start, stages in found["init_seconds"].items():
        for stage, seconds in (stages or {}).items():
            yield {"section": f"init {start}", "name": stage, "seconds": seconds}
    for engine in ("tflgpu", "litert"):
        if times := found[f"{engine}_seconds"]:
            yield {"section": "inference", "name": engine, "seconds": times["avg"]} | times
    for name, size in found["memory_bytes"].items():
        yield {"section": "memory", "name": name, "bytes": size}
    for number, kernel in enumerate(found["kernels"] or ()):
        name = " + ".join(kernel["operators"]) or kernel["kernel"]
        row = {"section": "kernel", "number": number, "name": name}
        yield row | {key: kernel[key] for key in ("seconds", "bytes")}


# Statistics in the order of a table's rows.
TIMES = ("first", "warmup_avg", "min", "p5", "median", "avg", "p95", "p99", "max", "std")


@with_options()
def benchmark_model(
    model: ModelPath,
    options: tflgpu.Options,
    runs: Annotated[int, typer.Option("--num-runs", "--runs", min=1, help="The least runs to measure.")] = 50,
    min_seconds: Annotated[float, typer.Option("--min-secs", min=0, help="Measure for at least so long.")] = 1.0,
    max_seconds: Annotated[float, typer.Option("--max-secs", min=0, help="Measure for no longer.")] = 150.0,
    warmup_runs: Annotated[int, typer.Option("--warmup-runs", min=1, help="The least runs to warm up with.")] = 1,
    warmup_min_seconds: Annotated[
        float, typer.Option("--warmup-min-secs", min=0, help="Warm up for at least so long.")
    ] = 0.5,
    profile: Annotated[bool, typer.Option("--profile", help="Add device time and rate of every kernel.")] = False,
    litert: Annotated[
        bool, typer.Option("--litert", help="Measure LiteRT's CPU interpreter in turns with tflgpu.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option("--num-threads", min=1, help="Cores of a CPU, and threads of LiteRT.", show_default="all cores"),
    ] = None,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV instead of tables, one row for each number.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure how long a model takes to start and to run on random inputs, host array to host array, and its memory.

    It starts twice: compiled into an empty cache, then from there in a new process. With --cache-dir, or another
    --cache than readwrite, it starts once, as that cache has it.

    Drivers keep compiled programs of their own: CUDA_CACHE_DISABLE=1 and POCL_KERNEL_CACHE=0 in the environment make a
    start cold.
    """
    if as_csv and as_json:
        raise ValueError("--csv and --json exclude each other")
    duration = Duration(runs, min_seconds, max_seconds, warmup_runs, warmup_min_seconds)
    options = replace(options, threads=threads)
    rival_threads = (threads or os.cpu_count() or 1) if litert else None
    with progress(f"measuring {model.name}"):
        found = measure_model(model, options, duration, threads=rival_threads, profile=profile)
    if as_csv:
        write_csv(_as_dict(model, found), sys.stdout)
    elif as_json:
        print_json(_as_dict(model, found))
    else:
        _print(model, found)


def _as_dict(model: Path, found: Measurement) -> dict[str, Any]:
    compiled, report = found.model, found.model.report
    starts = {start.kind: start for start in found.starts}
    cold, warm = starts.get("cold"), starts.get("warm")
    return {
        "model": model,
        "device": device_facts(compiled.device),
        "precision": compiled.precision,
        "executor": compiled.executor,
        "init_seconds": {"cold": cold and cold.seconds, "warm": warm and warm.seconds},
        "first_seconds": found.tflgpu.first,
        "warm_first_seconds": warm and warm.first,
        "tflgpu_seconds": found.tflgpu.as_dict(),
        "litert": {"version": found.rival.version, "threads": found.rival.threads} if found.rival else None,
        "litert_seconds": found.litert.as_dict() if found.litert else None,
        "litert_over_tflgpu": found.ratio,
        "memory_bytes": {
            "arena": report.arena_bytes,
            "arena_lower_bound": report.arena_lower_bound,
            "constants": report.constant_bytes,
            "resident_peak": found.peak_bytes,
            "cold_init": cold and cold.init_bytes,
            "cold_overall": cold and cold.overall_bytes,
            "warm_init": warm and warm.init_bytes,
            "warm_overall": warm and warm.overall_bytes,
        },
        "kernels": kernels_as_list(found.profile) if found.profile else None,
        "node_types": [asdict(t) for t in node_types(found.profile.kernels)] if found.profile else None,
    }


def _print(model: Path, found: Measurement) -> None:
    where = f"{escape(str(found.model.device.name))}, {found.model.precision}, {found.model.executor} executor"
    console.print(f"[bold]{escape(model.name)}[/] on {where}")
    console.print("", _start_table(found.starts), "", _latency_table(found), sep="\n")
    if found.ratio is not None:
        word, factor = ("faster", found.ratio) if found.ratio >= 1 else ("slower", 1 / found.ratio)
        console.print(f"\ntflgpu is [bold]{factor:.2f} times {word}[/] than LiteRT (medians, measured in turns)")
    console.print("", _memory_table(found), "", _device_memory(found.model.report), sep="\n")
    if found.profile:
        for each in profile_tables(found.profile):
            console.print("", each, sep="\n")
    _print_as_benchmark_model(found)


def _start_table(starts: Sequence[Start]) -> Table:
    kinds = [start.kind for start in starts]
    result = start_table(kinds, [start.seconds for start in starts], "init")
    result.add_row("first inference", *(f"{1e3 * s.first:.1f}" for s in starts))
    return result


def _latency_table(found: Measurement) -> Table:
    engines = {"tflgpu": found.tflgpu.as_dict()}
    if found.rival and found.litert:
        engines[f"{found.rival.name}, threads: {found.rival.threads}"] = found.litert.as_dict()
    result = Listing("inference, ms", *engines, right=tuple(engines))
    for name in TIMES:
        cells = (f"{1e3 * times[name]:.3f}" for times in engines.values())
        result.add_row(name.replace("_", " "), *cells, style="bold" if name == "median" else "")
    for name in ("warmup_runs", "runs"):
        result.add_row(name.replace("_", " "), *(str(times[name]) for times in engines.values()))
    return result


def _memory_table(found: Measurement) -> Table:
    kinds = [start.kind for start in found.starts]
    result = Listing("resident memory, MB", *kinds, right=kinds)
    result.add_row("added by init", *(_megabytes(s.init_bytes) for s in found.starts))
    result.add_row("and first inference", *(_megabytes(s.overall_bytes) for s in found.starts))
    result.add_row("peak of the process", _megabytes(found.peak_bytes), *[""] * (len(kinds) - 1))
    return result


def _megabytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e6:.1f}"


def _device_memory(report: Report) -> str:
    arena, bound, constants = (
        decimal(size or 0) for size in (report.arena_bytes, report.arena_lower_bound, report.constant_bytes)
    )
    return f"device memory: {arena} of activations (lower bound {bound}), {constants} of constants"


def _print_as_benchmark_model(found: Measurement) -> None:
    """Print the lines that scripts read from TFLite's tool, in its words and units; MB are 2**20 bytes there."""
    start, times = found.starts[0], found.tflgpu
    console.print(
        f"\nInference timings in us: Init: {1e6 * sum(start.seconds.values()):.0f}, "
        f"First inference: {1e6 * times.first:.0f}, Warmup (avg): {1e6 * times.warmup.avg:.6g}, "
        f"Inference (avg): {1e6 * times.run.avg:.6g}",
        soft_wrap=True,
    )
    if start.init_bytes is not None and start.overall_bytes is not None:
        deltas = f"init={start.init_bytes / 2**20:.6g} overall={start.overall_bytes / 2**20:.6g}"
        console.print(f"Memory footprint delta from the start of the tool (MB): {deltas}", soft_wrap=True)
