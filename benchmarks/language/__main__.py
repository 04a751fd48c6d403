"""SmolLM (135 million parameters) with drawn weights: tokens a second of prefill and decode, and memory.

    python -m benchmarks.language [--kinds fp16,int8,int4] [--contenders tflgpu,litert] [--device auto] [--out FILE]

Each contender runs in a process of its own, one after another: a prompt of 128 tokens, then as many greedy steps as
--tokens, the whole of it --rounds times after two that count for nothing. litert is on the CPU with --threads.
torch is on a GPU and has weights of its own in half, whatever the kind; without --contenders a GPU adds it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.language.description import drawn
from benchmarks.language.own_process import in_own_process
from benchmarks.publish import publish
from tflgpu.runtime.opencl.devices import choose

NETWORKS = Path(__file__).parent / "networks"


def rows(given: argparse.Namespace, folder: Path) -> Iterator[dict[str, object]]:
    """A row for each kind of weights and each contender."""
    for kind in given.kinds.split(","):
        path = folder / f"smollm_{kind}.tflite"
        path.write_bytes(drawn((NETWORKS / f"{path.name}.xz").read_bytes()))
        for name in given.contenders.split(","):
            facts = {"weights": kind, "contender": name, "file_mb": round(path.stat().st_size / 1e6)}
            yield facts | in_own_process(name, path, given)
        path.unlink()


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="fp16,int8,int4")
    parser.add_argument("--contenders", help="Of tflgpu, litert and torch.")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = int(given.device) if given.device.isdecimal() else given.device
    device = choose(chosen)
    given.contenders = given.contenders or ("tflgpu,litert,torch" if device.type == "gpu" else "tflgpu,litert")
    facts = {"precision": given.precision, "threads": given.threads, "tokens": given.tokens}
    packages = ("ai-edge-litert", "torch", "transformers", "pyopencl", "numpy")
    with tempfile.TemporaryDirectory() as folder:
        publish(rows(given, Path(folder)), device, given.out, packages=packages, **facts)


if __name__ == "__main__":
    main()
