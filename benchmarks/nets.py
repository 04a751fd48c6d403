"""Networks with drawn weights on a GPU in fp16, beside torch.compile of the same architectures in the same process.

    python -m benchmarks.nets MODEL... [--batch 64] [--rounds 10] [--out FILE]

Both have their inputs on the device, and are timed from launch to finish, in alternating rounds. torch compiles with
mode "reduce-overhead", in channels_last for images. A network that torch has no architecture for here is timed alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyopencl.array as cl_array

import tflgpu
from benchmarks.publish import publish

RUNS = 20  # in a row
PACKAGES = ("torch", "timm", "transformers", "pyopencl", "numpy")
Run = Callable[[], object]


def transformer(name: str) -> Any | None:
    """The architecture of a network that is not timm's, or None."""
    import transformers as t

    small = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    if name == "whisper_tiny_encoder":
        return t.WhisperModel(t.WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6)).encoder
    if name == "bert_mini":
        return t.BertModel(t.BertConfig(vocab_size=2000, **small))
    if name == "gpt2_mini":
        return t.GPT2Model(t.GPT2Config(vocab_size=2000, n_embd=256, n_layer=4, n_head=4))
    if name == "segformer_b0":
        return t.SegformerForSemanticSegmentation(t.SegformerConfig())
    return None


def peer(name: str, arrays: list[np.ndarray]) -> Run | None:
    """A function that runs the network of this name by torch on inputs like these; None if there is none."""
    import timm
    import torch

    is_image = name in timm.list_models()
    network = timm.create_model(name) if is_image else transformer(name)
    if network is None:
        return None
    network = network.cuda().half().eval()
    inputs = [torch.from_numpy(array).cuda() for array in arrays]
    if is_image:
        network = network.to(memory_format=torch.channels_last)
        inputs = [x.permute(0, 3, 1, 2) for x in inputs]
    inputs = [x.half() if x.is_floating_point() else x.long() for x in inputs]
    compiled = torch.compile(network, mode="reduce-overhead", dynamic=False)

    def run() -> None:
        with torch.inference_mode():
            compiled(*inputs)
        torch.cuda.synchronize()

    try:
        with torch.inference_mode():
            network(*inputs)  # some networks keep tensors of their first run
        for _ in range(5):  # compiles and records graphs
            run()
    except RuntimeError as error:
        print(f"torch does not run {name}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    return run


def subject(model: tflgpu.CompiledModel, arrays: list[np.ndarray]) -> Run:
    """A function that runs a compiled model, with arrays on the device."""
    inputs = [cl_array.to_device(model.queue, array) for array in arrays]
    outputs = {o.name: cl_array.empty(model.queue, o.shape, o.dtype) for o in model.outputs}
    return lambda: model.run(inputs, outputs)


def milliseconds(runs: Iterable[Run], rounds: int) -> list[float]:
    """The median of each, over alternating rounds."""
    timed: list[tuple[Run, list[float]]] = [(run, []) for run in runs]
    for run, _ in timed:
        for _ in range(RUNS):
            run()
    for _ in range(rounds):
        for run, seconds in timed:
            for _ in range(RUNS):
                begun = perf_counter()
                run()
                seconds.append(perf_counter() - begun)
    return [1e3 * median(seconds) for _, seconds in timed]


def rows(models: list[Path], batch: int | None, rounds: int) -> Iterator[dict[str, object]]:
    """A row for each network, in the batch of its file without ``batch``."""
    random = np.random.default_rng(0)
    for path in models:
        begun = perf_counter()
        shapes = tflgpu.Shapes(batch=batch)
        model = tflgpu.compile(path, tflgpu.Options(precision="fp16", shapes=shapes, fallback="forbid", cache="off"))
        cold = perf_counter() - begun
        arrays = [
            random.standard_normal(i.shape).astype(i.dtype)
            if i.dtype.startswith("float")
            else np.zeros(i.shape, i.dtype)
            for i in model.inputs
        ]
        other = peer(path.stem, arrays)
        times = milliseconds([subject(model, arrays), *([other] if other else [])], rounds)
        kernels = model.profile(arrays).kernels
        yield {
            "network": path.stem,
            "batch": batch,
            "ms": round(times[0], 4),
            "torch_ms": round(times[1], 4) if other else None,
            "ratio": round(times[0] / times[1], 3) if other else None,
            "executor": model.executor,
            "kernels": len(kernels),
            "attention_us": round(1e6 * max((k.seconds for k in kernels if "attention" in k.kernel), default=0.0), 2),
            "cold_compile_s": round(cold, 2),
        }


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    device = next(d for d in tflgpu.devices() if d.type == "gpu")
    publish(rows(given.models, given.batch, given.rounds), device, given.out, packages=PACKAGES, precision="fp16")


if __name__ == "__main__":
    main()
