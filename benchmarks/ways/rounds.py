"""Runs of one model in several ways, in turns in one process."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np

import tflgpu
from tflgpu.artifact.artifact import DevicePartition
from tflgpu.artifact.executable import Array
from tflgpu.compiler import compile_model
from tflgpu.options import Precision

SEED = 0


def parsed_arguments(description: str) -> argparse.Namespace:
    """Models, a device, a precision, how long to compare, and where the rows go."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=get_args(Precision), default="fp32")
    parser.add_argument("--seconds", type=float, default=8, help="for each model")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def device_partition(model: bytes, device: tflgpu.Device, precision: Precision) -> DevicePartition:
    """The model for the launch executor. Ends the program if a part of it runs on the CPU."""
    options = tflgpu.Options(
        device=device.index, precision=precision, execution=tflgpu.Execution(executor="launch"), cache="off"
    )
    (artifact,) = compile_model(model, options, device.target(options))
    (partition,) = artifact.partitions
    if not isinstance(partition, DevicePartition):
        raise SystemExit("a part of the model runs on the CPU")
    return partition


def random_inputs(partition: DevicePartition) -> list[Array]:
    random = np.random.default_rng(SEED)
    return [(16 * random.random(b.shape)).astype(b.dtype) for b in partition.executable.inputs]


def compare(
    ways: Mapping[str, Callable[[], list[Array]]], seconds: float, *, inexact: bool = False
) -> dict[str, dict[str, Any]]:
    """Times of a run in each way, in microseconds. All have to give the bits of the first, unless they are ``inexact``.

    In each round the ways come in another order, each with one run to warm up and one that counts. ``ratio`` is the
    median over the rounds of a run's time by that of the first way in the same round.
    """
    random = np.random.default_rng(SEED)
    first, *_ = ways
    wanted = [array.copy() for array in ways[first]()]
    times: dict[str, list[float]] = {way: [] for way in ways}
    end = time.perf_counter() + seconds
    while not times[first] or time.perf_counter() < end:
        for way in random.permutation(list(ways)):
            ways[way]()
            begin = time.perf_counter()
            found = ways[way]()
            times[way].append(time.perf_counter() - begin)
            for ours, theirs in () if inexact else zip(found, wanted, strict=True):
                np.testing.assert_array_equal(ours, theirs, err_msg=way)
    return {
        way: {
            "run_us": microseconds(median(each)),
            "least_run_us": microseconds(min(each)),
            "ratio": round(median(a / b for a, b in zip(each, times[first], strict=True)), 3),
            "rounds": len(each),
        }
        for way, each in times.items()
    }


def microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 1)
