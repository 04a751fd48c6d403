"""Results of a benchmark as comma-separated values: one row for each time or number of bytes."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, TextIO

from tflgpu.cli.timing import Latency

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
