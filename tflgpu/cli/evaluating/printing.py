"""Text that all evaluations print: the lines of TFLite's tools, LiteRT's numbers after the device's, and
percentiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from tflgpu.cli.console import console
from tflgpu.cli.evaluating.evaluation_run import Evaluated
from tflgpu.cli.terminal.listing import Listing
from tflgpu.cli.timing import Latency
from tflgpu.evaluate.task import DEVICE, LITERT

# Version of the JSON, which docs/tools/inspect.md describes.
FORMAT = 1

# The percentiles that are printed; the JSON has more.
COLUMNS = ("median", "p90", "p95", "p99", "max")


def latencies(found: Evaluated) -> dict[str, Latency]:
    """Return the latencies of each engine."""
    engines = found.rows[0]["seconds"]
    return {engine: Latency.of([row["seconds"][engine] for row in found.rows]) for engine in engines}


def common_facts(model: Path, found: Evaluated) -> dict[str, Any]:
    """Return what the JSON of every evaluation begins with."""
    engines = latencies(found)
    return {
        "format": FORMAT,
        "model": model,
        "device": found.engines.device,
        "precision": found.engines.precision,
        "litert": found.engines.litert,
        "files": len(found.rows),
        "preprocessing_seconds": asdict(_preprocessing(found)),
        "device_seconds": asdict(engines[DEVICE]),
        "litert_seconds": asdict(engines[LITERT]) if LITERT in engines else None,
    }


def print_latencies(found: Evaluated, names: Mapping[str, str]) -> None:
    """names: what the lines of the tool call the engines."""
    engines = latencies(found)
    console.print(f"Num evaluation runs: {len(found.rows)}")
    lines = {"Preprocessing": _preprocessing(found)}
    lines |= {name: engines[engine] for engine, name in names.items() if engine in engines}
    for name, latency in lines.items():
        console.print(f"{name} latency: avg={1e6 * latency.avg:.6g}(us), std_dev={1e6 * latency.std:.6g}(us)")


def print_percentiles(found: Evaluated) -> None:
    """Print a table of latencies in milliseconds, a column for each engine."""
    titles = {DEVICE: f"{escape(found.engines.device['name'])}, {found.engines.precision}"}
    if litert := found.engines.litert:
        titles[LITERT] = f"LiteRT {litert['version']} CPU, threads: {litert['threads']}"
    engines = latencies(found)
    listing = Listing("latency, ms", *COLUMNS, right=COLUMNS)
    for engine, title in titles.items():
        times = asdict(engines[engine])
        listing.add_row(title, *(f"{1e3 * times[name]:.3f}" for name in COLUMNS))
    console.print("", listing, sep="\n")


def beside(numbers: Mapping[str, float]) -> str:
    """Return the device's number, and LiteRT's after it."""
    behind = f" [dim](LiteRT {numbers[LITERT]:.6g})[/]" if LITERT in numbers else ""
    return f"{numbers[DEVICE]:.6g}{behind}"


def _preprocessing(found: Evaluated) -> Latency:
    return Latency.of([row["preprocessing_seconds"] for row in found.rows])
