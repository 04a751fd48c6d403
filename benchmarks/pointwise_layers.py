"""The rates of MobileNetV1's 1x1 convolutions, as parts of the peak measured in the same run, as rows of JSON.

    python -m benchmarks.pointwise_layers [--device D] [--precision fp32] [--rounds 12] [--out FILE]

Each is a kernel between two small ones in a model of its own; a profile of tflgpu gives its time, medians of rounds in
which the layers take turns. ``layers``: how many such the model has. The last row is all 13 of them together.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np

import tflgpu
from benchmarks.contest.ceilings import measure_ceilings
from benchmarks.publish import publish
from benchmarks.zoo.mobilenet import V1_BLOCKS
from benchmarks.zoo.network import Network
from tflgpu.runtime.opencl.devices import choose

Layer = tuple[int, int, int]  # height and width of the image, input channels, output channels


def layers_of_mobilenet() -> Counter[Layer]:
    """The pointwise convolutions of MobileNetV1 1.0 224, and how often it has each."""
    found: Counter[Layer] = Counter()
    size, channels = 112, 32
    for outputs, stride in V1_BLOCKS:
        size //= stride
        found[size, channels, outputs] += 1
        channels = outputs
    return found


def network(layer: Layer) -> bytes:
    size, channels, outputs = layer
    net = Network("one pointwise convolution", 0)
    x = net.conv(net.input(size), channels, activation="RELU6")
    return net.as_it_is(net.conv(net.conv(x, outputs, activation="RELU6"), 8))


def rows(options: tflgpu.Options, rounds: int, peak: float) -> Iterator[dict[str, object]]:
    """peak: operations in a second."""
    layers = layers_of_mobilenet()
    times: dict[Layer, list[float]] = {layer: [] for layer in layers}
    with ExitStack() as stack:
        models = {layer: stack.enter_context(tflgpu.compile(network(layer), options)) for layer in layers}
        for _ in range(rounds):
            for layer, model in models.items():
                image = np.zeros(model.inputs[0].shape, np.float32)
                longest = max(model.profile([image], 5).kernels, key=lambda kernel: kernel.macs)
                times[layer].append(longest.seconds)
    operations = {layer: 2 * layer[0] ** 2 * layer[1] * layer[2] for layer in layers}
    seconds = {layer: median(found) for layer, found in times.items()}
    for layer, count in layers.items():
        rate = operations[layer] / seconds[layer]
        size, channels, outputs = layer
        yield {
            "layer": f"{size}x{size}x{channels} -> {outputs}",
            "layers": count,
            "gflops": round(rate / 1e9, 1),
            "of_peak": round(rate / peak, 3),
        }
    whole = sum(operations[layer] * n for layer, n in layers.items())
    rate = whole / sum(seconds[layer] * n for layer, n in layers.items())
    yield {
        "layer": "all",
        "layers": layers.total(),
        "gflops": round(rate / 1e9, 1),
        "of_peak": round(rate / peak, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    options = tflgpu.Options(device=device.index, precision=arguments.precision, cache="off")
    peak = measure_ceilings(device.index).flops[arguments.precision]
    publish(rows(options, arguments.rounds, peak), device, arguments.out, peak_gflops=round(peak / 1e9, 1))


if __name__ == "__main__":
    main()
