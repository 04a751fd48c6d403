"""The time of one run by the cost model that chose the tiles and fusions, as rows of JSON.

    python -m benchmarks.ways.cost_models MODEL... [--device D] [--precisions fp16,fp32] [--executor auto]
                                          [--seconds 4] [--out FILE]

A MODEL is a .tflite file or a name of benchmarks.zoo. The ways are: the built-in costs, the same once more, which tells
how much is noise, and the costs that probes of the device give, which are measured first. ``kernels`` are those of the
GPU family, of which ``differing`` are divided otherwise by the measured costs; where none are, both programs are the
same. Runs are from arrays on the host to arrays on the host.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

import tflgpu
from benchmarks.publish import publish
from benchmarks.ways.precisions import outputs, random_inputs
from benchmarks.ways.rounds import compare
from benchmarks.zoo import load
from tflgpu.measure.device_model import measure
from tflgpu.options import ExecutorChoice
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session
from tflgpu.target.probes import cost_model_from
from tflgpu.target.target import BUILT_IN_COSTS

Precision = Literal["fp16", "fp32"]

WAYS: dict[str, Literal["built-in", "measured"]] = {
    "built-in": "built-in",
    "built-in again": "built-in",
    "measured": "measured",
}


def row(
    name: str, device: tflgpu.Device, precision: Precision, executor: ExecutorChoice, seconds: float
) -> dict[str, Any]:
    data = load(name)
    with ExitStack() as stack:
        models = {}
        for way, costs in WAYS.items():
            options = tflgpu.Options(
                device=device.index,
                execution=tflgpu.Execution(kernels="gpu", executor=executor, cost_model=costs),
                precision=precision,
                cache="off",
            )
            models[way] = stack.enter_context(tflgpu.compile(data, options))
        inputs = random_inputs(models["built-in"].inputs)
        for model in models.values():
            model.run(inputs)  # some drivers compile kernels at their first launch
        built_in, measured = (Counter(names(models[way])) for way in ("built-in", "measured"))
        return {
            "model": Path(name).stem,
            "precision": precision,
            "executors": {way: model.executor for way, model in models.items()},
            "kernels": measured.total(),
            "differing": (measured - built_in).total(),
            "ways": compare({way: partial(outputs, m, inputs) for way, m in models.items()}, seconds, inexact=True),
        }


def names(model: tflgpu.CompiledModel) -> Iterator[str]:
    """Names of the functions that a model launches; they tell how the work is divided."""
    for piece in model._artifact.pieces:
        yield from (launch.function for launch in piece.executable.launches)


def rows(arguments: argparse.Namespace, device: tflgpu.Device) -> Iterator[dict[str, Any]]:
    for name in arguments.models:
        for precision in arguments.precisions.split(","):
            yield row(name, device, precision, arguments.executor, arguments.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precisions", default="fp16,fp32")
    parser.add_argument("--executor", default="auto", choices=("auto", "launch", "persistent"))
    parser.add_argument("--seconds", type=float, default=4, help="for each model and precision")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", tflgpu.FallbackWarning)
    device = choose(arguments.device)
    probes = measure(open_session(device))
    costs = {"built-in": asdict(BUILT_IN_COSTS), "measured": asdict(cost_model_from(probes))}
    print(np.round(probes.seconds, 2), "s of probes:", costs["measured"], flush=True)
    publish(rows(arguments, device), device, arguments.out, probes=asdict(probes), costs=costs)


if __name__ == "__main__":
    main()
