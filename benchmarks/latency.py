"""Latency, cold start and error of tflgpu beside LiteRT's CPU interpreter, in one run, as rows of JSON.

    python -m benchmarks.latency MODEL... [--device D] [--precision fp32,fp16] [--threads 2] [--out FILE]

A MODEL is a .tflite file or a name of benchmarks.zoo. Rounds of the two alternate; medians are compared. ``cold_s`` is
valid only with all caches of drivers off (CUDA_CACHE_DISABLE=1 POCL_KERNEL_CACHE=0 PYOPENCL_NO_CACHE=1).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import tflgpu
from benchmarks import choices
from benchmarks.contest.case import relative_error
from benchmarks.publish import publish
from benchmarks.zoo import load
from tflgpu.cli.measurement import seconds_of
from tflgpu.options import Precision
from tflgpu.runtime.opencl.devices import choose

CACHE_SWITCHES = {"CUDA_CACHE_DISABLE": "1", "POCL_KERNEL_CACHE": "0", "PYOPENCL_NO_CACHE": "1"}


def rows(
    model: str, device: str, precisions: Sequence[Precision], threads: int, rounds: int
) -> Iterator[dict[str, object]]:
    data = load(model)
    interpreter = Interpreter(model_content=data, num_threads=threads)
    interpreter.allocate_tensors()
    random = np.random.default_rng(0)
    inputs = [random.uniform(-1, 1, d["shape"]).astype(np.float32) for d in interpreter.get_input_details()]

    def litert() -> list[np.ndarray]:
        for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]

    expected = litert()
    for precision in precisions:
        options = tflgpu.Options(precision=precision, device=device, cache="off")
        start = time.perf_counter()
        compiled = tflgpu.compile(data, options)
        cold = time.perf_counter() - start
        got = list(compiled.run(inputs).values())
        for _ in range(5):
            compiled.run(inputs)
            litert()
        pairs = [(seconds_of(partial(compiled.run, inputs)), seconds_of(litert)) for _ in range(rounds)]
        own, peer = (median(column) for column in zip(*pairs, strict=True))
        profile = compiled.profile(inputs)
        yield {
            "model": Path(model).stem,
            "batch": int(inputs[0].shape[0]),
            "precision": precision,
            "metric": "host",
            "tflgpu_ms": round(own * 1e3, 4),
            "peer": f"litert-cpu-{threads}-threads",
            "peer_ms": round(peer * 1e3, 4),
            "ratio": round(own / peer, 3),
            "max_error": max(relative_error(g, e) for g, e in zip(got, expected, strict=True)),
            "device_ms": round(profile.seconds * 1e3, 4),
            "kernels": len(profile.kernels),
            "cold_s": round(cold, 3),
            "python_s": round(compiled.seconds["plan"] + compiled.seconds["render"], 3),
            "arena_bytes": compiled.report.arena_bytes,
            "arena_lower_bound": compiled.report.arena_lower_bound,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", type=choices.precisions, default="fp32,fp16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    off = all(os.environ.get(k) == v for k, v in CACHE_SWITCHES.items())
    found = (
        row
        for model in arguments.models
        for row in rows(model, arguments.device, arguments.precision, arguments.threads, arguments.rounds)
    )
    publish(found, device, arguments.out, driver_caches_off=off)


if __name__ == "__main__":
    main()
