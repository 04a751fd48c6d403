"""Kernels of the GPU family without PTX and matrix units, beside those that the device would have, as rows of JSON.

    python -m benchmarks.plain_kernels MODEL... [--device D] [--precision fp32] [--cost-model built-in] [--rounds 20]
                                       [--out FILE]

A MODEL is a .tflite file or a name of benchmarks.zoo. Times are device time of all kernels, by the launch executor. Two
programs take turns, and the medians of the ratios of neighbours are given: of each model with plain kernels over the
device's own by the built-in cost model, and of each matrix product over the same 1x1 convolution, both with plain
kernels, conversions of layouts left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

import tflgpu
from benchmarks.plain_kernels.products import SIZES, forms
from benchmarks.publish import publish
from benchmarks.zoo import load
from tflgpu.compiler import compile_model
from tflgpu.measure.device_model import planned_target
from tflgpu.report.profile import Stopwatch
from tflgpu.runtime.instance import Instance
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import Session, open_session
from tflgpu.target import Target


class Program:
    """A model that is ready to run on random inputs."""

    def __init__(self, data: bytes, options: tflgpu.Options, target: Target, session: Session) -> None:
        (artifact,) = compile_model(data, options, target)
        self._instance = Instance(artifact, session, Stopwatch())
        random = np.random.default_rng(0)
        self._inputs = [random.standard_normal(info.shape).astype(info.dtype) for _, info in artifact.inputs]

    def seconds(self, *, products: bool = False) -> float:
        """Device time of one run: of all kernels, or of those that multiply matrices."""
        found, _ = self._instance.profile(self._inputs, 1)
        return sum(
            time.end - time.begin
            for piece, times in found
            for launch, time in zip(piece.executable.launches, times or (), strict=True)
            if launch.macs or not products
        )


def in_turns(programs: Sequence[Program], rounds: int, *, products: bool = False) -> list[dict[str, float]]:
    """The median time of each, and the median of its ratios to the first."""
    times = [[program.seconds(products=products) for program in programs] for _ in range(rounds + 2)][2:]
    columns = list(zip(*times, strict=True))
    return [
        {
            "ms": round(1e3 * median(column), 4),
            "ratio": round(median(a / b for a, b in zip(column, columns[0], strict=True)), 3),
        }
        for column in columns
    ]


def rows(
    models: Sequence[str], device: tflgpu.Device, options: tflgpu.Options, rounds: int
) -> Iterator[dict[str, object]]:
    session, own = open_session(device), device.target(options)
    plain = replace(planned_target(device, options, lambda: session), ptx=False, matrix_unit=None)
    for model in models:
        each = [Program(load(model), options, target, session) for target in (own, plain)]
        before, after = in_turns(each, rounds)
        yield {"model": Path(model).stem, "own_ms": before["ms"], "plain_ms": after["ms"], "ratio": after["ratio"]}
    for size in SIZES:
        found = dict(forms(*size))
        each = [Program(data, options, plain, session) for data in found.values()]
        for name, result in zip(found, in_turns(each, rounds, products=True), strict=True):
            yield {"product": list(size), "form": name, **result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--cost-model", default="built-in")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    options = tflgpu.Options(
        device=device.index,
        precision=arguments.precision,
        execution=tflgpu.Execution(executor="launch", kernels="gpu", cost_model=arguments.cost_model),
        cache="off",
    )
    publish(rows(arguments.models, device, options, arguments.rounds), device, arguments.out)


if __name__ == "__main__":
    main()
