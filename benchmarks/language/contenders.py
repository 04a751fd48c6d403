"""Contenders that run a language model: each prepares a file, and then reads prompts and decodes tokens.

A contender is in a process of its own, so that its memory can be told.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

PREFILL, CACHE, VOCABULARY = 128, 1280, 49152


class Contender(Protocol):
    """A language model that is ready to run."""

    def prefill(self, tokens: list[int]) -> None:
        """Fill the cache with 128 tokens."""

    def decode(self, token: int, position: int, count: int) -> list[int]:
        """The likeliest tokens after this one, which is at ``position``."""


def steps(step: Callable[[int, int], int], token: int, position: int, count: int) -> list[int]:
    """Tokens of one step after another, each of which is given the last token and its position."""
    found: list[int] = []
    for place in range(position, position + count):
        token = step(token, place)
        found.append(token)
    return found


class Tflgpu:
    """tflgpu, with the cache on the device; on a GPU that also chooses tokens, as for ``tflgpu generate``."""

    def __init__(self, path: Path, device: str, precision: str, threads: int) -> None:
        import tflgpu
        from tflgpu.language import TokenDecoder

        options: dict[str, Any] = {"device": int(device) if device.isdecimal() else device, "precision": precision}
        self._decoder = TokenDecoder.compile(path.read_bytes(), tflgpu.Options(fallback="forbid", **options))
        self._decoder.prepare(PREFILL)

    def prefill(self, tokens: list[int]) -> None:
        """Fill the cache with 128 tokens."""
        self._decoder.read([])  # or the cache would have them already
        self._decoder.read(tokens)

    def decode(self, token: int, position: int, count: int) -> list[int]:
        """The likeliest tokens after this one."""
        from tflgpu.language.sampling import Sampler, Sampling

        return list(self._decoder.follow(token, position, Sampler(Sampling()), count))


class LiteRT:
    """LiteRT's CompiledModel on the CPU. As in LiteRT-LM, two sets of buffers for the cache take turns."""

    def __init__(self, path: Path, device: str, precision: str, threads: int) -> None:
        from ai_edge_litert.compiled_model import CompiledModel
        from ai_edge_litert.cpu_options import CpuOptions
        from ai_edge_litert.hardware_accelerator import HardwareAccelerator
        from ai_edge_litert.options import Options

        options = Options(hardware_accelerators=HardwareAccelerator.CPU, cpu_options=CpuOptions(num_threads=threads))
        self._model = CompiledModel.from_file(str(path), options=options)
        self._prefill = next(key for key in self._model.get_signature_list() if key.startswith("prefill"))
        names = self._model.get_signature_list()["decode"]["inputs"]
        self._caches = [name for name in names if name.startswith("kv_cache")]
        self._read = {name: self._model.create_input_buffer_by_name("decode", name) for name in self._caches}
        self._written = {name: self._model.create_output_buffer_by_name("decode", name) for name in self._caches}
        details = self._model.get_input_tensor_details("decode")
        for name, buffer in self._read.items():
            buffer.write(np.zeros(details[name]["shape"], np.float32))
        self._inputs = {
            key: {n: self._model.create_input_buffer_by_name(key, n) for n in ("tokens", "input_pos")}
            for key in ("decode", self._prefill)
        }
        self._logits = self._model.create_output_buffer_by_name("decode", "logits")

    def prefill(self, tokens: list[int]) -> None:
        """Fill the cache with 128 tokens."""
        self._run(self._prefill, tokens, 0)

    def decode(self, token: int, position: int, count: int) -> list[int]:
        """The likeliest tokens after this one."""
        return steps(self._step, token, position, count)

    def _step(self, token: int, position: int) -> int:
        self._run("decode", [token], position)
        return int(self._logits.read(VOCABULARY, np.float32).argmax())

    def _run(self, key: str, tokens: list[int], position: int) -> None:
        inputs = self._inputs[key]
        inputs["tokens"].write(np.array([tokens], np.int32))
        inputs["input_pos"].write(np.arange(position, position + len(tokens), dtype=np.int32))
        scores = {"logits": self._logits} if key == "decode" else {}
        self._model.run_by_name(key, inputs | self._read, self._written | scores)
        self._read, self._written = self._written, self._read


class Torch:
    """The same architecture in half, with torch.compile and a static cache, on a GPU."""

    def __init__(self, path: Path, device: str, precision: str, threads: int) -> None:
        import torch

        from benchmarks.language.torch_decoder import Decoder

        self._torch = torch
        self._network = torch.compile(
            Decoder(VOCABULARY, CACHE).cuda().half().eval(), mode="reduce-overhead", fullgraph=True, dynamic=False
        )

    def prefill(self, tokens: list[int]) -> None:
        """Fill the cache with 128 tokens."""
        self._run(tokens, 0)
        self._torch.cuda.synchronize()

    def decode(self, token: int, position: int, count: int) -> list[int]:
        """The likeliest tokens after this one."""
        return steps(lambda last, place: int(self._run([last], place)[0].argmax()), token, position, count)

    def _run(self, tokens: list[int], position: int) -> Any:
        torch = self._torch
        with torch.inference_mode():
            places = torch.arange(position, position + len(tokens), device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            return self._network(torch.tensor([tokens], device="cuda"), places)


CONTENDERS: dict[str, Callable[[Path, str, str, int], Contender]] = {
    "tflgpu": Tflgpu,
    "litert": LiteRT,
    "torch": Torch,
}


def resident_bytes() -> int:
    """Memory of this process that is neither swapped out nor shared with a file."""
    with open(f"/proc/{os.getpid()}/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["RssAnon"].split()[0]) * 1024


def gpu_bytes() -> int | None:
    """Memory of the first NVIDIA GPU that is in use; None without one."""
    import subprocess

    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(answer) << 20
