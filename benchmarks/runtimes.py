"""Time of models on several OpenCL devices of one machine, as CPU runtimes are, as rows of JSON.

    python -m benchmarks.runtimes MODEL... --devices NAME,NAME[,NAME] [--precision fp32] [--rounds 6] [--out FILE]

A MODEL is a .tflite file or a name of benchmarks.zoo. Each figure is of a process of its own, for threads of one
runtime that look for work slow down another's: the median of all runs of a second, from host array to host array.
Processes take turns, and ``ratio`` is the median of rounds' ratios to the first device, on whose outputs the error is
based, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

import tflgpu
from benchmarks import choices
from benchmarks.contest.case import relative_error
from benchmarks.publish import publish
from benchmarks.ways.precisions import random_inputs
from benchmarks.zoo import load
from tflgpu.cli.measurement import repeat
from tflgpu.options import Precision
from tflgpu.runtime.opencl.devices import choose

# Runs before the first that counts: a small model decides in them on how many cores it runs.
WARM_UP = 500


def measured(data: bytes, device: str, precision: Precision, seconds: float) -> tuple[float, list[NDArray[np.generic]]]:
    """Seconds of a run, and its outputs."""
    model = tflgpu.compile(data, tflgpu.Options(device=device, precision=precision))
    inputs = random_inputs(model.inputs)
    outputs = list(model.run(inputs).values())
    repeat(lambda: model.run(inputs), WARM_UP, 0, seconds)
    return median(repeat(lambda: model.run(inputs), 1, seconds)), outputs


def rows(
    model: str, devices: Sequence[str], precision: Precision, rounds: int, seconds: float
) -> Iterator[dict[str, object]]:
    data, spawn = load(model), get_context("spawn")
    found: dict[str, list[float]] = {device: [] for device in devices}
    results = {}
    for _ in range(rounds):
        for device in devices:
            with spawn.Pool(1) as process:
                taken, results[device] = process.apply(measured, (data, device, precision, seconds))
            found[device].append(taken)
    first = devices[0]
    for device, times in found.items():
        ratios = [own / other for own, other in zip(times, found[first], strict=True)]
        errors = [relative_error(got, expected) for got, expected in zip(results[device], results[first], strict=True)]
        yield {
            "model": Path(model).stem,
            "precision": precision,
            "metric": "host",
            "device": device,
            "ms": round(median(times) * 1e3, 4),
            "ratio": round(median(ratios), 3),
            "rounds": [round(ratio, 2) for ratio in ratios],
            "max_error": max(errors),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--devices", type=lambda text: text.split(","), required=True)
    parser.add_argument("--precision", type=choices.precisions, default="fp32")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1, help="of one process's runs")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    drivers = {device: choose(device).driver for device in arguments.devices}
    found = (
        row
        for model in arguments.models
        for precision in arguments.precision
        for row in rows(model, arguments.devices, precision, arguments.rounds, arguments.seconds)
    )
    publish(found, choose(arguments.devices[0]), arguments.out, drivers=drivers)


if __name__ == "__main__":
    main()
