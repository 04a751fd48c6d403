"""The whole of what ``test_limited_devices.py`` samples: ``python -m tests.runtime.limits.limited_matrix [NAME...]``.

The first row of each operator of the op table with a chain to fuse, the template cases and eight models, on every
simulated device (or those whose names contain a NAME), with both families of kernels, in fp32 and fp16. Takes some ten
minutes of one core. Prints what failed.

Programs that several devices share are compiled once, but for devices whose language is simulated.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tflgpu
from tests.ops.case import Case, Row
from tests.ops.table import ROWS
from tests.ops.tolerance import check
from tests.quick import RUNTIMES
from tests.runtime.limits.test_limited_devices import template_cases
from tests.support.limited_devices import SIMULATIONS, limited

MODELS = (
    "mobilenet_v1_0.25_224_1_default_1",
    "face_detection_short_range",
    "face_landmark",
    "pretrainedResnet",
    "selfie_segmenter",
    "trained_lstm",
    "kws_ref_model_float32",
    "yolox_nano_float16_quantize",
)
WAYS = tuple(product(("gpu", "cpu"), ("fp32", "fp16")))
TOLERANCE = {"fp32": 1e-4, "fp16": 5e-2}  # of a model's outputs, as a part of their range
FOLDER = Path(os.environ.get("TFLGPU_SHARED", "../shared")) / "models"

Array = NDArray[np.float32]


def drawn(row: Row) -> Case:
    """One case of a row, always the same."""
    cases: list[Case] = []

    @settings(max_examples=1, derandomize=True, database=None, deadline=None, phases=[Phase.generate])
    @given(data=st.data())
    def draw(data: st.DataObject) -> None:
        cases.append(data.draw(row.case(fused=True)))

    draw()
    return cases[0]


@cache
def table() -> dict[str, Case]:
    first = {row.op: row for row in reversed(ROWS)}.values()
    return {row.name: drawn(row) for row in first} | template_cases()


def compiled(model: bytes, family: str, precision: str, mode: str) -> tflgpu.CompiledModel:
    options = tflgpu.Options(kernels=family, precision=precision, cache=mode, fallback="forbid")  # type: ignore[arg-type]
    return tflgpu.compile(model, options)


@cache
def expected(name: str) -> tuple[list[Array], list[Array]]:
    """Inputs of a model, and its outputs on the device without limits."""
    model = compiled((FOLDER / f"{name}.tflite").read_bytes(), "cpu", "fp32", "off")
    random = np.random.default_rng(0)
    inputs = [random.uniform(0, 1, info.shape).astype(info.dtype) for info in model.inputs]
    return inputs, list(model.run(inputs).values())


def failures(mode: str) -> Iterator[str]:
    """What goes wrong on the only device that there is."""
    for (name, case), (family, precision) in product(table().items(), WAYS):
        try:
            outputs = compiled(case.model, family, precision, mode).run(case.inputs)
            for got, wanted in zip(outputs.values(), case.expected, strict=True):
                check(got, wanted, case.tolerance, precision, case.describe)
        except Exception as error:
            yield f"{name}, {family}, {precision}: {type(error).__name__}: {str(error)[:500]}"
    for name, (family, precision) in product(MODELS, WAYS):
        inputs, outputs = expected(name)
        try:
            model = (FOLDER / f"{name}.tflite").read_bytes()
            results = compiled(model, family, precision, mode).run(inputs)
            for got, wanted in zip(results.values(), outputs, strict=True):
                extent = np.ptp(wanted) if wanted.size > 1 else np.abs(wanted).max()
                error = float(np.abs(got - wanted).max() / extent)
                if error > TOLERANCE[precision]:
                    yield f"{name}, {family}, {precision}: off by {error:.2e} of the range"
        except Exception as error:
            yield f"{name}, {family}, {precision}: {type(error).__name__}: {str(error)[:500]}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TFLGPU_CACHE_DIR"] = folder
        run_all()


def run_all() -> None:
    for name in MODELS:
        expected(name)
    for name, simulation in SIMULATIONS.items():
        if not sys.argv[1:] or any(part in name for part in sys.argv[1:]):
            begin = time.process_time()
            with limited(RUNTIMES[0], simulation):
                found = list(failures("off" if "opencl_c" in simulation.limits else "readwrite"))
            print(f"{name}: {len(found)} failures, {time.process_time() - begin:.0f} s of CPU time")
            print(*found, sep="\n", flush=True)


if __name__ == "__main__":
    main()
