"""Time per operation of one convolution over its channels, and of MobileNetV2 over its input's size, as rows of JSON.

    python -m benchmarks.scaling [--device D] [--precision fp32] [--rounds 15] [--out FILE] [--plot FILE]

The convolution is a 3x3 one of as many channels to as many, on an image of 32x32. Times are from host array to host
array, medians of rounds in which tflgpu and LiteRT's CPU interpreter, on all cores, take turns. ``knee``: the smallest
size from which on no time per operation is more than 1.5 times another; null if there is none below the last.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import tflgpu
from benchmarks.contest.contender import timed
from benchmarks.publish import publish
from benchmarks.zoo import mobilenet_v2
from tflgpu.model.writer import ModelBuilder
from tflgpu.runtime.opencl.devices import choose

FLAT = 1.5
RUNS = 20  # of one engine in a round


def convolution(channels: int) -> bytes:
    b = ModelBuilder()
    image, result = b.input((1, 32, 32, channels)), b.tensor((1, 32, 32, channels))
    weights = np.random.default_rng(0).standard_normal((channels, 3, 3, channels)).astype(np.float32)
    constants = b.constant(weights / channels), b.constant(np.zeros(channels, np.float32))
    b.op("CONV_2D", [image, *constants], [result], {"padding": "SAME", "stride_h": 1, "stride_w": 1})
    return b.finish([result])


def network(size: int) -> bytes:
    return mobilenet_v2(size=size)


# The series, what varies in them, and its values.
SERIES: dict[str, tuple[Callable[[int], bytes], str, Sequence[int]]] = {
    "3x3 convolution": (convolution, "channels", (8, 16, 32, 64, 128, 256, 512, 1024)),
    "mobilenet_v2": (network, "size of the image", (96, 128, 160, 192, 224, 256, 320, 384, 448, 512)),
}


def measured(model: bytes, options: tflgpu.Options, rounds: int) -> dict[str, float]:
    """Multiply-adds of a run, and milliseconds of both engines."""
    with tflgpu.compile(model, options) as compiled:
        (info,) = compiled.inputs
        image = np.random.default_rng(0).uniform(-1, 1, info.shape).astype(np.float32)
        macs = sum(kernel.macs for kernel in compiled.profile([image], 1).kernels)
        samples = {"tflgpu_ms": timed(partial(compiled.run, [image])), "litert_ms": timed(_litert(model, image))}
        times: dict[str, list[float]] = {name: [] for name in samples}
        for _ in range(rounds):
            for name, sample in samples.items():
                times[name] += sample(RUNS)
    return {"macs": macs} | {name: round(1e3 * median(found), 4) for name, found in times.items()}


def _litert(model: bytes, image: np.ndarray) -> Callable[[], object]:
    interpreter = Interpreter(model_content=model, num_threads=len(os.sched_getaffinity(0)))
    interpreter.allocate_tensors()
    (inputs,), (outputs,) = interpreter.get_input_details(), interpreter.get_output_details()

    def run() -> object:
        interpreter.set_tensor(inputs["index"], image)
        interpreter.invoke()
        return interpreter.get_tensor(outputs["index"])

    return run


def knee(sizes: Sequence[int], times: Sequence[float]) -> int | None:
    """Where times per operation begin to be flat."""
    for begin in range(len(sizes) - 1):
        if max(times[begin:]) <= FLAT * min(times[begin:]):
            return sizes[begin]
    return None


def rows(options: tflgpu.Options, rounds: int) -> Iterator[dict[str, Any]]:
    for name, (model, what, sizes) in SERIES.items():
        points = []
        for size in sizes:
            point = {"at": size, **measured(model(size), options, rounds)}
            for engine in ("tflgpu", "litert"):
                point[f"{engine}_ps_per_operation"] = round(1e9 * point[f"{engine}_ms"] / (2 * point["macs"]), 3)
            points.append(point)
        knees = {
            f"{engine}_knee": knee(sizes, [point[f"{engine}_ps_per_operation"] for point in points])
            for engine in ("tflgpu", "litert")
        }
        yield {"series": name, "over": what, **knees, "points": points}


def plot(found: Sequence[dict[str, Any]], picture: Path) -> None:
    """Needs matplotlib (extra ``dev``)."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "tflgpu"}
    figure, (panels,) = pyplot.subplots(1, len(found), figsize=(9, 3), layout="constrained", squeeze=False)
    for axes, row in zip(panels, found, strict=True):
        for engine, colour in (("tflgpu", "#1b6ca8"), ("litert", "#d9a441")):
            times = [point[f"{engine}_ps_per_operation"] for point in row["points"]]
            axes.plot([point["at"] for point in row["points"]], times, "o-", color=colour, label=engine, markersize=3)
        axes.set_xscale("log", base=2)
        axes.set_xticks([point["at"] for point in row["points"]], [str(point["at"]) for point in row["points"]])
        axes.tick_params(labelsize=7)
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel(row["over"], fontsize=8)
        axes.set_title(f"{row['series']}: ps for each multiply and each add", fontsize=9, loc="left")
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    options = tflgpu.Options(device=device.index, precision=arguments.precision)
    found = list(rows(options, arguments.rounds))
    publish(found, device, arguments.out)
    if arguments.plot:
        plot(found, arguments.plot)


if __name__ == "__main__":
    main()
