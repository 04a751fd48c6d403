"""SmolLM (135 million parameters) with drawn weights: tokens a second of prefill and decode, and memory.

    python -m benchmarks.language [--kinds fp16,int8,int4] [--contenders tflgpu,litert] [--device auto] [--out FILE]

Each contender runs in a process of its own, one after another: a prompt of 128 tokens, then as many greedy steps as
--tokens, the whole of it --rounds times after two that count for nothing. litert is on the CPU with --threads.
torch is on a GPU and has weights of its own in half, whatever the kind; without --contenders a GPU adds it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.language.contenders import CONTENDERS, PREFILL, gpu_bytes, resident_bytes
from benchmarks.language.description import drawn
from benchmarks.publish import publish
from tflgpu.runtime.opencl.devices import choose

NETWORKS = Path(__file__).parent / "networks"

WARM_UPS = 2  # rounds; torch compiles again in the second one

PATIENCE = 600  # seconds for one contender


def measured(name: str, path: Path, given: argparse.Namespace) -> dict[str, object]:
    """What a contender takes, in this process."""
    before, gpu_before = resident_bytes(), gpu_bytes()
    begun = perf_counter()
    contender = CONTENDERS[name](path, given.device, given.precision, given.threads)
    ready = perf_counter() - begun
    prefills: list[float] = []
    decodes: list[float] = []
    said: list[int] = []
    for _ in range(WARM_UPS + given.rounds):
        begun = perf_counter()
        contender.prefill([(31 * i + 7) % 1000 for i in range(PREFILL)])
        prefills.append(perf_counter() - begun)
        token, said = 5, []
        begun = perf_counter()
        for position in range(PREFILL, PREFILL + given.tokens):
            token = contender.decode(token, position)
            said.append(token)
        decodes.append(perf_counter() - begun)
    gpu_after = gpu_bytes()
    return {
        "prefill_tokens_per_s": round(PREFILL / median(prefills[WARM_UPS:]), 1),
        "decode_tokens_per_s": round(given.tokens / median(decodes[WARM_UPS:]), 2),
        "decode_ms_per_token": round(1e3 * median(decodes[WARM_UPS:]) / given.tokens, 3),
        "host_mb": round((resident_bytes() - before) / 1e6),
        "gpu_mb": None if gpu_after is None or gpu_before is None else round((gpu_after - gpu_before) / 1e6),
        "ready_s": round(ready, 1),
        "first_tokens": said[:8],
    }


def _serve(connection: Connection, name: str, path: Path, given: argparse.Namespace) -> None:
    try:
        connection.send(measured(name, path, given))
    except Exception as error:  # which costs this row alone
        connection.send({"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]})


def in_own_process(name: str, path: Path, given: argparse.Namespace) -> dict[str, object]:
    """What a contender takes, or why it fails."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, name, path, given))
    process.start()
    theirs.close()
    try:
        if not ours.poll(PATIENCE):
            return {"failed": f"no answer within {PATIENCE} s"}
        row: dict[str, object] = ours.recv()
    except (EOFError, ConnectionError):
        process.join()
        return {"failed": f"its process ended with exit code {process.exitcode}"}
    else:
        return row
    finally:
        process.kill()
        process.join()


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
