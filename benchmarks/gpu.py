"""Times of the persistent executor on a GPU beside the launch executor and PyTorch, in one run, as rows of JSON.

    python -m benchmarks.gpu MODEL... [--device D] [--precision fp16,fp32] [--rounds 10] [--torch] [--out FILE]

A MODEL is a .tflite file or a name of benchmarks.zoo. Metrics: ``device`` is the time on the device's clock, ``launch``
from the launch to the end with all data on the device, ``host`` from host array to host array. Rounds of some calls
each alternate, because the device takes its time to switch between the contexts of OpenCL and CUDA; medians are
compared, outputs are checked against LiteRT's CPU interpreter. --torch adds timm's network of
the same name in channels_last: torch.compile(mode="reduce-overhead") in fp16, a CUDA graph without tf32 in fp32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import tflgpu
from benchmarks.latency import load, relative_error, seconds
from benchmarks.publish import PACKAGES, publish
from tflgpu.artifact import DevicePart
from tflgpu.build import build
from tflgpu.compiler import compile_model
from tflgpu.instance import open_executor
from tflgpu.runtime.devices import Device, choose
from tflgpu.runtime.executor import Executor
from tflgpu.runtime.session import open_session
from tflgpu.stopwatch import Stopwatch

TIMM = {"mobilenet_v1": "mobilenetv1_100", "mobilenet_v2": "mobilenetv2_100", "resnet50": "resnet50"}
CALLS = 20
Call = Callable[[], object]


def reference(data: bytes) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random inputs, and LiteRT's outputs for them."""
    interpreter = Interpreter(model_content=data)
    interpreter.allocate_tensors()
    random = np.random.default_rng(0)
    inputs = [random.uniform(-1, 1, d["shape"]).astype(np.float32) for d in interpreter.get_input_details()]
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return inputs, [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def executor(data: bytes, device: Device, options: tflgpu.Options) -> Executor:
    """The executor of a model that runs wholly on the device."""
    (part,) = compile_model(data, options, device.target(options), Stopwatch()).parts
    assert isinstance(part, DevicePart)
    session = open_session(device)
    return open_executor(part, build(part.source, session)[0], session)


def torch_call(model: str, precision: str) -> tuple[str, Call]:
    """PyTorch's name for what it does, and a call that runs the network once on data on the device, and waits."""
    import timm
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    dtype = torch.float16 if precision == "fp16" else torch.float32
    network = timm.create_model(TIMM[model]).cuda().to(dtype).eval().to(memory_format=torch.channels_last)
    x = torch.rand(1, 3, 224, 224, device="cuda", dtype=dtype).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        if precision == "fp16":
            compiled = torch.compile(network, mode="reduce-overhead")
            for _ in range(5):
                compiled(x)

            def run() -> None:
                with torch.inference_mode():
                    compiled(x)
                torch.cuda.synchronize()

            return "torch-compile-reduce-overhead", run
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                network(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            network(x)

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return "torch-cuda-graph", replay


def medians(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Milliseconds of each call; rounds of ``CALLS`` alternate, the first half of each warms up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name] += [seconds(call) for _ in range(CALLS)][CALLS // 2 :]
    return {name: 1e3 * median(found) for name, found in times.items()}


def rows(model: str, device: Device, precision: str, rounds: int, torch: bool) -> Iterator[dict[str, object]]:
    data = load(model)
    inputs, expected = reference(data)
    launch: dict[str, Call] = {}
    host: dict[str, Call] = {}
    on_device: dict[str, float] = {}
    cold = error = 0.0
    for name in ("launch", "persistent"):
        options = tflgpu.Options(device=device.index, precision=precision, executor=name)
        start = time.perf_counter()
        compiled = tflgpu.compile(data, options)
        cold = time.perf_counter() - start
        outputs = compiled.run(inputs).values()
        error = max(relative_error(g, e) for g, e in zip(outputs, expected, strict=True))
        on_device[name] = 1e3 * compiled.profile(inputs, runs=20).seconds
        host[name] = partial(compiled.run, inputs)
        engine = executor(data, device, options)
        engine.run(inputs)
        launch[name] = engine.launch
    if torch and model in TIMM:
        name, call = torch_call(model, precision)
        launch[name] = call
    for metric, found in (("device", on_device), ("launch", medians(launch, rounds)), ("host", medians(host, rounds))):
        own = found.pop("persistent")
        for peer, peer_ms in found.items():
            yield {
                "model": Path(model).stem,
                "batch": int(inputs[0].shape[0]),
                "precision": precision,
                "metric": metric,
                "tflgpu_ms": round(own, 4),
                "peer": "tflgpu-launch-executor" if peer == "launch" else peer,
                "peer_ms": round(peer_ms, 4),
                "ratio": round(own / peer_ms, 3),
                "max_error": error,
                "cold_s": round(cold, 3),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp16,fp32")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    found = (
        row
        for model in arguments.models
        for precision in arguments.precision.split(",")
        for row in rows(model, device, precision, arguments.rounds, arguments.torch)
    )
    peers = ("torch", "timm") if arguments.torch else ()
    publish(found, device, arguments.out, packages=(*PACKAGES, *peers))


if __name__ == "__main__":
    main()
