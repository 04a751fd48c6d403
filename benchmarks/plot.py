"""Results of benchmarks.gpu or benchmarks.cpu as bars: tflgpu beside its peers at batch 1. Needs matplotlib.

python -m benchmarks.plot benchmarks/results/gpu-DATE.json... docs/pictures/gpu.svg [--precision fp16]

Several files are of runs on the same device: of one after the other, for instance, that needs other peers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")  # needs no screen
from matplotlib import pyplot

# Metric -> title, and colour of each engine. Peers far outside of the others' range are only in the table.
PANELS = {
    "launch": (
        "launch to finish, data on the device",
        {"tflgpu": "#1b6ca8", "torch-compile-reduce-overhead": "#9aa5b1", "torch-cuda-graph": "#cfd6dd"},
    ),
    "host": (
        "host array to host array",
        {
            "tflgpu": "#1b6ca8",
            "litert-gpu": "#d9a441",
            "litert-cpu": "#d9a441",
            "openvino": "#9aa5b1",
            "onnx-runtime": "#cfd6dd",
        },
    ),
}
BARS = 0.78  # of all engines, of the distance between two models
LEAST_HEIGHT, ENGINE_HEIGHT = 4.2, 0.19  # inches, of a picture and of each engine of a model

Row = Mapping[str, Any]


def times(rows: list[Row], metric: str, precision: str) -> dict[str, dict[str, float]]:
    """Model -> engine -> milliseconds, of models that have a peer in this panel."""
    _, colours = PANELS[metric]
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        shown = row["metric"] == metric and row["precision"] == precision and row["batch"] == 1
        if shown and row["peer"] in colours and row["peer_ms"] and row["tflgpu_ms"]:
            found.setdefault(row["model"], {"tflgpu": row["tflgpu_ms"]})[row["peer"]] = row["peer_ms"]
    return found


def draw(axes: Any, models: Mapping[str, Mapping[str, float]], metric: str) -> None:
    title, colours = PANELS[metric]
    there = [engine for engine in colours if any(engine in engines for engines in models.values())]
    bar = BARS / max(len(there), 3)
    for place, engine in enumerate(there):
        bars = [(row, engines[engine]) for row, engines in enumerate(models.values()) if engine in engines]
        heights = [row + (place - (len(there) - 1) / 2) * bar for row, _ in bars]
        drawn = axes.barh(heights, [ms for _, ms in bars], bar, color=colours[engine], label=engine)
        axes.bar_label(drawn, fmt="%.2f", padding=2, fontsize=7)
    axes.set_yticks(range(len(models)), list(models), fontsize=8)
    axes.invert_yaxis()
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel("ms", fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--precision", default="fp16")
    arguments = parser.parse_args()
    first, *others = [json.loads(path.read_text()) for path in arguments.results]
    if {other["device"] for other in others} - {first["device"]}:
        raise SystemExit("the results are of several devices; a picture shows one")
    rows = [row for result in (first, *others) for row in result["rows"]]
    # Text stays text, and equal results give equal files.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "tflgpu"}
    found = {metric: times(rows, metric, arguments.precision) for metric in PANELS}
    shown = {metric: models for metric, models in found.items() if models}
    places = max(len(models) * max(map(len, models.values())) for models in shown.values())
    size = 9, max(LEAST_HEIGHT, ENGINE_HEIGHT * places)
    figure, (panels,) = pyplot.subplots(1, len(shown), figsize=size, layout="constrained", squeeze=False)
    for axes, (metric, models) in zip(panels, shown.items(), strict=True):
        draw(axes, models, metric)
    handles = {h.get_label(): h for axes in panels for h in axes.containers}  # the same colours in all panels
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    figure.suptitle(f"{first['device']}, {arguments.precision}, batch 1 ({first['date']})", fontsize=10)
    figure.savefig(arguments.picture, metadata={"Date": None})


if __name__ == "__main__":
    main()
