"""PyTorch on CUDA: timm's network of the same name, its input on the device, from call to synchronize."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.contest.case import Case
from benchmarks.contest.contender import Contender, Metric, Skipped, timed

NAME = "torch"
METRIC: Metric = "launch"
TIMM = {
    "mobilenet_v1": "mobilenetv1_100",
    "mobilenet_v2": "mobilenetv2_100",
    "resnet50": "resnet50",
    "efficientnet_b0": "efficientnet_b0",
}


def covers(case: Case) -> bool:
    return case.model in TIMM


def contenders(case: Case) -> list[Contender]:
    """Eager, as a CUDA graph, and for fp16 also compiled (mode reduce-overhead, with CUDA graphs). No tf32."""
    try:
        import timm
        import torch
    except ImportError as error:
        raise Skipped(str(error)) from error
    if not torch.cuda.is_available():
        raise Skipped("PyTorch sees no CUDA device")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    dtype = torch.float16 if case.precision == "fp16" else torch.float32
    network = timm.create_model(TIMM[case.model]).cuda().to(dtype).eval().to(memory_format=torch.channels_last)
    x = torch.rand(case.batch, 3, 224, 224, device="cuda", dtype=dtype).to(memory_format=torch.channels_last)
    calls = {"torch-eager": lambda: network(x), "torch-cuda-graph": _graph(network, x)}
    if case.precision == "fp16":
        compiled = torch.compile(network, mode="reduce-overhead", dynamic=False)
        calls["torch-compile-reduce-overhead"] = lambda: compiled(x)
    return list(_contenders(calls))


def _graph(network: Any, x: Any) -> Callable[[], object]:
    import torch

    stream = torch.cuda.Stream()
    with torch.inference_mode():
        with torch.cuda.stream(stream):
            for _ in range(3):
                network(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            network(x)
    replay: Callable[[], object] = graph.replay
    return replay


def _contenders(calls: dict[str, Callable[[], object]]) -> Iterator[Contender]:
    import torch

    for name, call in calls.items():

        def run(call: Callable[[], object] = call) -> None:
            with torch.inference_mode():
                call()
            torch.cuda.synchronize()

        for _ in range(5):  # compiles and records graphs
            run()
        yield Contender(name, METRIC, timed(run))
