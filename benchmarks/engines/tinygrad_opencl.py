"""tinygrad on OpenCL, jitted, in fp32: MobileNets with the zoo's structure and other weights.

The input is on the device; the time is from the call to the end. fp16 needs cl_khr_fp16, which NVIDIA does not have.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest.case import Case
from benchmarks.contest.contender import Contender, Metric, Skipped, timed
from benchmarks.zoo.mobilenet import V1_BLOCKS, V2_STAGES

NAME = "tinygrad-opencl"
METRIC: Metric = "launch"


def covers(case: Case) -> bool:
    return case.model in NETWORKS and case.precision == "fp32"


def contenders(case: Case) -> list[Contender]:
    _find_opencl()
    try:
        from tinygrad import Device, Tensor, TinyJit
    except ImportError as error:
        raise Skipped(str(error)) from error
    layers = NETWORKS[case.model]()
    x = Tensor(np.zeros((case.batch, 3, 224, 224), np.float32)).realize()
    network = TinyJit(lambda x: x.sequential(layers).flatten(1).softmax().realize())

    def run() -> None:
        network(x)
        Device[Device.DEFAULT].synchronize()

    for _ in range(3):  # the second run records
        run()
    return [Contender(NAME, METRIC, timed(run))]


def _find_opencl() -> None:
    """Let tinygrad find the loader that pyopencl brings: it searches the system's only."""
    import pyopencl

    os.environ["DEV"] = "CL"
    for library in (Path(pyopencl.__file__).parent / ".libs").glob("libOpenCL*"):
        os.environ.setdefault("OPENCL_PATH", str(library))


def _mobilenet_v1() -> list[Any]:
    layers, depth = [_conv(3, 32, 3, 2)], 32
    for channels, stride in V1_BLOCKS:
        layers += [_conv(depth, depth, 3, stride, depth), _conv(depth, channels)]
        depth = channels
    return [*layers, _mean, _conv(depth, 1001, clamp=False)]


def _mobilenet_v2() -> list[Any]:
    layers, depth = [_conv(3, 32, 3, 2)], 32
    for expansion, channels, blocks, first_stride in V2_STAGES:
        for block in range(blocks):
            inner, stride = depth * expansion, first_stride if block == 0 else 1
            branch = [_conv(depth, inner)] if expansion > 1 else []
            branch += [_conv(inner, inner, 3, stride, inner), _conv(inner, channels, clamp=False)]
            layers += [_residual(branch)] if block else branch
            depth = channels
    return [*layers, _conv(depth, 1280), _mean, _conv(1280, 1001, clamp=False)]


NETWORKS = {"mobilenet_v1": _mobilenet_v1, "mobilenet_v2": _mobilenet_v2}


def _conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, *, clamp: bool = True) -> Any:
    from tinygrad import Tensor

    shape = (outputs, inputs // groups, kernel, kernel)
    weights = Tensor(np.full(shape, 1e-2, np.float32)).realize()
    bias = Tensor(np.zeros(outputs, np.float32)).realize()

    def layer(x: Any) -> Any:
        y = x.conv2d(weights, bias, groups=groups, stride=stride, padding=kernel // 2)
        return y.relu6() if clamp else y

    return layer


def _residual(branch: list[Any]) -> Any:
    return lambda x: x + x.sequential(branch)


def _mean(x: Any) -> Any:
    return x.mean((2, 3), keepdim=True)
