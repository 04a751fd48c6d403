"""Check one device: ``python -m tests.drivers.check_device PLATFORM VERSIONS [--all]``, VERSIONS as in 6.0,7.1.

Every second operator and eight real models, each with one family of kernels in one precision; with ``--all`` the whole
op table and the models in all four ways. Prints what is wrong, and the number of checks. The exit code is 1 if
anything is, and 2 if the platform has no device with a driver of these versions.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tflgpu
from tests.acceptance.test_models import TOLERANCE, error
from tests.ops.case import Row
from tests.ops.table import ROWS
from tests.ops.tolerance import check
from tests.support import litert
from tflgpu.options import Options

WRONG_VERSION = 2
# Small ones in which errors do not grow: a CPU runtime compiles each kernel for seconds. The larger ones come where the
# kernels are those for GPUs.
MODELS = (
    "mobilenet_v1_0.25_224_1_default_1",
    "face_landmark",
    "dtln_model_1",
    "kws_ref_model_float32",
    "ad01_int8",
    "pretrainedResnet",
    "kws_ref_model",
    "keras_lstm_mnist_ptq",
)
# float64 is an option of OpenCL, and no driver here has it.
NEEDS_DOUBLE = "does not compute with float64"


ONE_EXAMPLE = settings(
    max_examples=1,
    database=None,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Program(NamedTuple):
    kernels: str
    precision: str


PROGRAMS = tuple(Program(*each) for each in product(("gpu", "cpu"), ("fp32", "fp16")))
Check = tuple[str, Callable[[], None]]


def row_checks(device: int, whole: bool) -> Iterator[Check]:
    programs = cycle(PROGRAMS)
    rows = ROWS if whole else [*{row.op: row for row in reversed(ROWS)}.values()][::2]
    for row in rows:
        for fused, program in product((False, True), PROGRAMS) if whole else ((True, next(programs)),):
            name = f"{row.name} {'fused' if fused else 'alone'}, {program.kernels} kernels, {program.precision}"
            yield name, lambda row=row, fused=fused, program=program: check_row(row, fused, program, device)


def check_row(row: Row, fused: bool, program: Program, device: int) -> None:
    @ONE_EXAMPLE
    @given(data=st.data())
    def compute(data: st.DataObject) -> None:
        case = data.draw(row.case(fused))
        options = Options(**program._asdict(), device=device, fallback="forbid", cache="off")
        outputs = tflgpu.compile(case.model, options).run(case.inputs)
        for got, expected in zip(outputs.values(), case.expected, strict=True):
            check(got, expected, case.tolerance, program.precision)

    compute()


def model_checks(device: int, whole: bool) -> Iterator[Check]:
    folder = Path(os.environ.get("TFLGPU_SHARED", Path(__file__).parents[3] / "shared")) / "models"
    programs = cycle(PROGRAMS)
    for name in MODELS:
        for program in PROGRAMS if whole else (next(programs),):
            path = folder / f"{name}.tflite"
            text = f"{name}, {program.kernels} kernels, {program.precision}"
            yield text, lambda path=path, program=program: check_model(path, program, device)


def check_model(path: Path, program: Program, device: int) -> None:
    compiled = tflgpu.compile(path, Options(**program._asdict(), device=device, cache="off"))
    inputs = [some_values(tensor.shape, np.dtype(tensor.dtype)) for tensor in compiled.inputs]
    outputs = zip(compiled.run(inputs).values(), litert.run(path.read_bytes(), *inputs).items(), strict=True)
    for got, (name, expected) in outputs:
        difference = error(got.astype(np.float64), expected.astype(np.float64))
        assert difference <= TOLERANCE[program.precision], f"{name} is off by {difference:.2g} of its range"


def some_values(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    random = np.random.default_rng(0)
    return random.uniform(0, 1, shape).astype(dtype) if dtype.kind == "f" else random.integers(0, 100, shape, dtype)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("platform")
    parser.add_argument("versions", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--all", action="store_true")
    wanted = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {d.driver: d.index for d in tflgpu.devices() if d.platform == wanted.platform}
    fitting = [index for driver, index in found.items() if driver.startswith(wanted.versions)]
    if not fitting:
        print(f"{wanted.platform} has no driver of version {wanted.versions}, but {list(found)}")
        return WRONG_VERSION
    checks, wrong = 0, 0
    for name, compute in (*row_checks(fitting[0], wanted.all), *model_checks(fitting[0], wanted.all)):
        checks += 1
        try:
            compute()
        except Exception as failure:
            if NEEDS_DOUBLE not in str(failure):
                wrong += 1
                print(f"{name}: {type(failure).__name__}: {failure}", flush=True)
    print(f"{checks} checks, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
