"""Damaged copies of a model, taken through every stage that needs no device.

``python -m tests.support.mutants MODEL SEED COUNT`` prints a JSON list of what came to light: damage that gave
another error than ModelError, that took too much memory, or too long. ``test_reader.py`` starts it as a process of its
own, because the limit on memory is for good.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tflgpu.codegen.render import render
from tflgpu.errors import ModelError
from tflgpu.frontend.lower import lower
from tflgpu.model.reader import read_model
from tflgpu.passes import optimize
from tflgpu.plan import make_plan
from tflgpu.target import Target

MEMORY = 4 << 30  # bytes of address space, numpy and its threads included
SECONDS = 5.0
TARGETS = tuple(Target(family=family, compute_units=4, storage="float") for family in ("cpu", "gpu"))
# Besides random bytes: what makes sizes zero, negative or huge, and offsets point at themselves.
TELLING = (0x00, 0x01, 0x7F, 0x80, 0xFF)


def structure(data: bytes) -> NDArray[np.int64]:
    """The positions of bytes that are not weights: there damage means something."""
    start = np.frombuffer(data, np.uint8).ctypes.data
    outside = np.ones(len(data), bool)
    for subgraph in read_model(data).subgraphs:
        for tensor in subgraph.tensors:
            if tensor.data is not None and tensor.data.nbytes > 64:
                begin = tensor.data.ctypes.data - start
                outside[begin : begin + tensor.data.nbytes] = False
    return np.flatnonzero(outside)


def mutants(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Copies with one to four bytes changed, one in twenty cut short as well."""
    rng = np.random.default_rng(seed)
    places = structure(data)
    for _ in range(count):
        mutant = np.frombuffer(data, np.uint8).copy()
        for place in rng.choice(places, rng.integers(1, 5)):
            mutant[place] = rng.choice(TELLING) if rng.random() < 0.5 else rng.integers(256)
        yield mutant[: rng.integers(len(data)) if rng.random() < 0.05 else None].tobytes()


def compile_without_device(data: bytes) -> None:
    """Everything up to source text; a model with obstacles stops after the stage that finds them."""
    lowered = lower(read_model(data))
    if lowered.is_whole:
        graph = optimize(lowered.graph)
        for target in TARGETS:
            render(make_plan(graph, target))


def findings(data: bytes, seed: int, count: int) -> list[str]:
    found = []
    for number, mutant in enumerate(mutants(data, seed, count)):
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            compile_without_device(mutant)
        except ModelError:
            pass
        except Exception:
            found.append(f"mutant {number} of seed {seed}:\n{traceback.format_exc(limit=-3)}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_long)
    model, seed, count = sys.argv[1:]
    print(json.dumps(findings(Path(model).read_bytes(), int(seed), int(count))))
