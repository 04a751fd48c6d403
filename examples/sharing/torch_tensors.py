"""PyTorch before and after a model: which tensors tflgpu reads where they are, and which are copied.

    pip install torch
    python examples/sharing/torch_tensors.py models/mobilenet_v1_0.25_224_1_default_1.tflite images/cat.png

pyopencl's arrays know nothing of DLPack, and OpenCL cannot open CUDA's memory. So a tensor on a GPU is copied through
the host, in one go each way (`PinnedInput`). On CPU devices both sides can work in the same memory (`SharedTensors`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import pyopencl as cl
import torch
from PIL import Image

import tflgpu


def run_tensor(model: tflgpu.CompiledModel, image: torch.Tensor) -> torch.Tensor:
    """The simplest way. A tensor of the CPU is read where it is; the result is a tensor in the output's memory."""
    (scores,) = model.run({model.inputs[0].name: image.cpu()}).values()
    return torch.from_dlpack(scores)


class PinnedInput:
    """For tensors of a GPU: the input's pinned memory as a tensor. The copy from CUDA's memory is the only one."""

    def __init__(self, model: tflgpu.CompiledModel) -> None:
        self.model, self.array = model, model.pinned_array(model.inputs[0].name)
        self.tensor = torch.from_dlpack(self.array)  # the same memory

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        self.tensor.copy_(image)
        (scores,) = self.model.run(self.array).values()
        return torch.from_dlpack(scores).to(image.device)


class SharedTensors:
    """For devices of type CPU: one input and one output tensor, in whose memory the kernels themselves work."""

    def __init__(self, model: tflgpu.CompiledModel) -> None:
        (wanted,), (given,) = model.inputs, model.outputs
        self.model, self.input_name, self.output_name = model, wanted.name, given.name
        self.image, self.scores = torch.zeros(wanted.shape), torch.zeros(given.shape)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        self.buffers = [cl.Buffer(model.queue.context, flags, hostbuf=t.numpy()) for t in (self.image, self.scores)]

    def __call__(self) -> torch.Tensor:
        """Run with what is in `image`; `scores` is valid until the next call."""
        image, scores = self.buffers
        self.model.run({self.input_name: image}, outputs={self.output_name: scores})
        # Mapping is what makes a device's results visible to the host. On a CPU it moves nothing.
        shape, queue = tuple(self.scores.shape), self.model.queue
        mapped, _ = cl.enqueue_map_buffer(queue, scores, cl.map_flags.READ, 0, shape, np.dtype(np.float32))
        mapped.base.release(queue)
        return self.scores


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a float classifier on tensors of PyTorch.")
    parser.add_argument("model", type=Path)
    parser.add_argument("image", type=Path)
    arguments = parser.parse_args()

    model = tflgpu.compile(arguments.model)
    _, height, width, _ = model.inputs[0].shape
    with Image.open(arguments.image) as picture:
        pixels = torch.from_numpy(np.array(picture.convert("RGB").resize((width, height))))[None]
    image = (pixels - 127.5) / 127.5  # preprocessing in PyTorch; on CUDA if it is there
    image = image.to("cuda" if torch.cuda.is_available() else "cpu")

    torch.set_num_threads(1)  # idle ones spin for a while, and would take the cores from a device that is the CPU
    pinned = PinnedInput(model)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "tensor": lambda: run_tensor(model, image),
        "pinned": lambda: pinned(image),
    }
    if model.device.type == "cpu":
        shared = SharedTensors(model)
        shared.image.copy_(image)
        ways["shared"] = shared
    for name, run in ways.items():
        seconds = []
        for _ in range(20):
            start = perf_counter()
            scores = run()
            seconds.append(perf_counter() - start)
        probability, best = scores[0].max(dim=0)
        print(f"{name}: class {best} with {probability:.1%}, {np.median(seconds) * 1000:.2f} ms on {model.device.name}")


if __name__ == "__main__":
    main()
