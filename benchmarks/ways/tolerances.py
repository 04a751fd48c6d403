"""Measures the cost of a tolerance beside fp16, and whether it holds on inputs that calibration did not see, as JSON.

    python -m benchmarks.ways.tolerances MODEL... [--images FILE...] [--tolerance 0.01] [--device D] [--kernels auto]
                                         [--seconds 4] [--out FILE]

``errors`` are as in :mod:`benchmarks.ways.precisions`, over the images, of which each is scaled to 0..1 and to -1..1
for float inputs, and over random numbers. ``ratio`` is the time of a run by that of one in fp16, in turns.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

import tflgpu
from benchmarks.publish import publish
from benchmarks.ways.precisions import EXACT, errors, outputs
from benchmarks.ways.rounds import SEED, compare
from tflgpu.inputs import random_input
from tflgpu.inputs.images import Preprocessing, read_image
from tflgpu.model.declared_metadata import Normalization
from tflgpu.options import KernelFamily
from tflgpu.runtime.opencl.devices import choose

SCALES = (Normalization((0.0,), (255.0,)), Normalization((127.5,), (127.5,)))
RANDOM = 4  # sets of random numbers


def row(
    path: Path, images: Sequence[Path], tolerance: float, device: tflgpu.Device, kernels: KernelFamily, seconds: float
) -> dict[str, Any]:
    """The first time is fp16's."""
    shared: dict[str, Any] = {"device": device.index, "cache": "off", "execution": tflgpu.Execution(kernels=kernels)}
    ways: dict[str, dict[str, Any]] = {
        "fp16": {"precision": "fp16"},
        "mixed": {"numerics": tflgpu.Numerics(tolerance=tolerance)},
        EXACT: {"precision": EXACT},
    }
    with ExitStack() as stack:
        models = {
            name: stack.enter_context(tflgpu.compile(path, tflgpu.Options(**shared, **own)))
            for name, own in ways.items()
        }
        inputs = list(unseen(models[EXACT].inputs, images))
        runs = {name: partial(outputs, model, inputs[0]) for name, model in models.items()}
        mixed = models["mixed"].report.mixed
        assert mixed is not None
        return {
            "model": path.stem,
            "kept": len(mixed.kept),
            "tensors": mixed.tensors,
            "calibration_error": mixed.error,
            "calibration_seconds": round(mixed.seconds, 1),
            "errors": errors(models, inputs),
            "executors": {name: model.executor for name, model in models.items()},
            "ways": compare(runs, seconds, inexact=True),
        }


def unseen(infos: Sequence[tflgpu.TensorInfo], images: Sequence[Path]) -> Iterator[list[np.ndarray]]:
    for path in images:
        for scale in SCALES if np.dtype(infos[0].dtype).kind == "f" else SCALES[:1]:
            if len(infos) == 1 and len(infos[0].shape) == 4:
                yield [picture(path, infos[0], scale)]
    for number in range(RANDOM):
        random = np.random.default_rng((SEED, number))
        yield [random_input(info, random) for info in infos]


def picture(path: Path, info: tflgpu.TensorInfo, scale: Normalization) -> np.ndarray:
    """An image in the input's shape, the channels first where the shape has them there."""
    batch, *sizes = info.shape
    first = sizes[0] in (1, 3)
    height, width, channels = (*sizes[1:], sizes[0]) if first else sizes
    interleaved = tflgpu.TensorInfo(info.name, (1, height, width, channels), info.dtype, info.quantization, ())
    normalization = scale if np.dtype(info.dtype).kind == "f" else None
    pixels = Preprocessing(normalization).apply(read_image(path, channels), interleaved)
    return np.ascontiguousarray(np.stack([pixels.transpose(2, 0, 1) if first else pixels] * batch))


def rows(arguments: argparse.Namespace, device: tflgpu.Device) -> Iterator[dict[str, Any]]:
    for path in arguments.models:
        yield row(path, arguments.images, arguments.tolerance, device, arguments.kernels, arguments.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--images", nargs="+", type=Path, default=[])
    parser.add_argument("--tolerance", type=float, default=1e-2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--kernels", default="auto", choices=get_args(KernelFamily))
    parser.add_argument("--seconds", type=float, default=4, help="for each model")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", tflgpu.FallbackWarning)
    device = choose(arguments.device)
    publish(rows(arguments, device), device, arguments.out, kernels=arguments.kernels, tolerance=arguments.tolerance)


if __name__ == "__main__":
    main()
