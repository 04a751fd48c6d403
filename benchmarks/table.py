"""Results of benchmarks.gpu or benchmarks.cpu as a table in Markdown.

python -m benchmarks.table FILE
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

METRICS = ("device", "launch", "host")
# Column -> the peer, and the metric that compares it.
PEERS = {
    "torch.compile": ("torch-compile-reduce-overhead", "launch"),
    "CUDA graph": ("torch-cuda-graph", "launch"),
    "LiteRT GPU": ("litert-gpu", "host"),
    "tinygrad": ("tinygrad-opencl", "launch"),
    "LiteRT CPU": ("litert-cpu", "host"),
    "on one core": ("litert-cpu-1-thread", "host"),
    "OpenVINO": ("openvino", "host"),
    "ONNX Runtime": ("onnx-runtime", "host"),
}

Row = Mapping[str, Any]


def lines(rows: list[Row]) -> Iterator[str]:
    """One line for each model, batch and precision: milliseconds of tflgpu, then its time divided by each peer's."""
    there = {(r["peer"], r["metric"]) for r in rows}
    peers = {title: key for title, key in PEERS.items() if key in there}
    columns = ("model", "batch", "precision", *METRICS, *peers, "roofline", "max error")
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for case in dict.fromkeys(map(_case, rows)):
        own = [r for r in rows if _case(r) == case and r["engine"] == "tflgpu"]
        times = {r["metric"]: r["tflgpu_ms"] for r in own}
        ratios = {(r["peer"], r["metric"]): r["ratio"] for r in own}
        roofline = next((r["roofline"] for r in own if r["roofline"] is not None), None)
        error = max((r["max_error"] for r in own if r["max_error"] is not None), default=None)
        cells = [
            *map(str, case),
            *(_number(times.get(metric), ".3f") for metric in METRICS),
            *(_number(ratios.get(key), ".2f") for key in peers.values()),
            _number(roofline, ".0%"),
            _number(error, ".0e"),
        ]
        yield f"| {' | '.join(cells)} |"


def _case(row: Row) -> tuple[str, int, str]:
    return row["model"], row["batch"], row["precision"]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    print("\n".join(lines(json.loads(parser.parse_args().file.read_text())["rows"])))


if __name__ == "__main__":
    main()
