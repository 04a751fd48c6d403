"""Errors and times of fp16 and fp16_fast beside fp32, as rows of JSON.

    python -m benchmarks.ways.precisions MODEL... [--images FILE...] [--device D] [--kernels auto] [--seconds 8]
                                         [--out FILE]

Each MODEL, a .tflite file, gets one image after another; random numbers instead if it takes none, or none are given.
``errors`` are the largest differences from the device's own results in fp32, over all runs and outputs, as a part of
the range of an output's values and zero. Runs are from arrays on the host to arrays on the host. A precision that the
device does not have is left out.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

import tflgpu
from benchmarks.publish import publish
from benchmarks.ways.rounds import SEED, compare
from tflgpu.evaluate.accuracy import Deviation
from tflgpu.inputs import InputReader, random_input
from tflgpu.options import KernelFamily, Precision
from tflgpu.runtime.opencl.devices import choose

Models = Mapping[str, tflgpu.CompiledModel]

EXACT = "fp32"


def row(
    path: Path, images: Sequence[Path], device: tflgpu.Device, kernels: KernelFamily, seconds: float
) -> dict[str, Any]:
    precisions: list[Precision] = ["fp32", "fp16"]
    if device.limits.half_arithmetic:
        precisions.append("fp16_fast")
    with ExitStack() as stack:
        models: dict[str, tflgpu.CompiledModel] = {}
        for precision in precisions:
            options = tflgpu.Options(
                precision=precision, device=device.index, execution=tflgpu.Execution(kernels=kernels), cache="off"
            )
            models[precision] = stack.enter_context(tflgpu.compile(path, options))
        inputs = given_inputs(path, models[EXACT].inputs, images)
        runs = {precision: partial(outputs, model, inputs[0]) for precision, model in models.items()}
        return {
            "model": path.stem,
            "errors": errors(models, inputs),
            "ways": compare(runs, seconds, inexact=True),
        }


def outputs(model: tflgpu.CompiledModel, given: list[np.ndarray]) -> list[np.ndarray]:
    return list(model.run(given).values())


def given_inputs(path: Path, infos: Sequence[tflgpu.TensorInfo], images: Sequence[Path]) -> list[list[np.ndarray]]:
    reader = InputReader(path, infos)
    try:
        return [reader.read([image]) for image in images] or [random_inputs(infos)]
    except ValueError:
        return [random_inputs(infos)]


def random_inputs(infos: Sequence[tflgpu.TensorInfo]) -> list[np.ndarray]:
    random = np.random.default_rng(SEED)
    return [random_input(info, random) for info in infos]


def errors(models: Models, inputs: Sequence[list[np.ndarray]]) -> dict[str, float]:
    found = {}
    for precision, model in models.items():
        deviations = {info.name: Deviation() for info in model.outputs}
        for given in inputs:
            expected, got = models[EXACT].run(given), model.run(given)
            for name, deviation in deviations.items():
                deviation.add(expected[name], got[name])
        found[precision] = float(f"{max(d.relative for d in deviations.values()):.2g}")
    return found


def rows(arguments: argparse.Namespace, device: tflgpu.Device) -> Iterator[dict[str, Any]]:
    for path in arguments.models:
        yield row(path, arguments.images, device, arguments.kernels, arguments.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--images", nargs="+", type=Path, default=[])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kernels", default="auto", choices=get_args(KernelFamily))
    parser.add_argument("--seconds", type=float, default=8, help="for each model")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", tflgpu.FallbackWarning)
    device = choose(arguments.device)
    publish(rows(arguments, device), device, arguments.out, kernels=arguments.kernels)


if __name__ == "__main__":
    main()
