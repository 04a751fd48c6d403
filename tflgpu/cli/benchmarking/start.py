"""The start of a model, up to its first result: time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tflgpu.api import CompiledModel
from tflgpu.cli.benchmarking.footprint import peak_resident_bytes
from tflgpu.cli.tables import start_kind
from tflgpu.cli.timing import seconds_of
from tflgpu.inputs import random_input


@dataclass(frozen=True)
class Start:
    """kind: ``"cold"`` if the model was compiled, ``"warm"`` if it came from the cache.

    seconds: what each stage of that took. first: seconds of the first run.

    init_bytes, overall_bytes: how far compiling, and that and the first run, have raised the peak of the process's
    resident memory; None where the system does not tell.
    """

    kind: str
    seconds: Mapping[str, float]
    first: float
    init_bytes: int | None
    overall_bytes: int | None


def start(model: Path, options: tflgpu.Options) -> tuple[CompiledModel, Start]:
    """Return the model, which has run once on :func:`random_inputs`."""
    before = peak_resident_bytes()
    compiled = tflgpu.compile(model, options)
    init = peak_resident_bytes()
    inputs = random_inputs(compiled)
    first = seconds_of(lambda: compiled.run(inputs))
    overall = peak_resident_bytes()
    growth = _growth(before, init), _growth(before, overall)
    return compiled, Start(start_kind(compiled), dict(compiled.seconds), first, *growth)


def start_and_close(model: Path, options: tflgpu.Options) -> Start:
    """For a process of its own, which has opened no device yet."""
    compiled, started = start(model, options)
    compiled.close()
    return started


def random_inputs(compiled: CompiledModel) -> Sequence[NDArray[Any]]:
    """Return the same numbers every time."""
    generator = np.random.default_rng(0)
    return [random_input(info, generator) for info in compiled.inputs]


def _growth(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before
