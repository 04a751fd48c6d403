"""Measures one contender in a process of its own, so that its memory is its own and a crash costs one row.

multiprocessing starts no function of a module ``__main__``.
"""

from __future__ import annotations

import argparse
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter

from benchmarks.language.contenders import CONTENDERS, PREFILL, gpu_bytes, resident_bytes

WARM_UPS = 2  # rounds; torch compiles again in the second one

PATIENCE = 600  # seconds for one contender


def measured(name: str, path: Path, given: argparse.Namespace) -> dict[str, object]:
    """The measurements of a contender, in this process."""
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
        begun = perf_counter()
        said = contender.decode(5, PREFILL, given.tokens)
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
    """The measurements of a contender in a process of its own, or why it fails."""
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
