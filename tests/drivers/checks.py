"""Checks that every device has to pass: the op table, small models that use every template, and real models."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import cycle, product
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

import tflgpu
from tests.acceptance.real_models import TOLERANCE, error
from tests.ops.case import Case, Net, Row
from tests.ops.table import ROWS
from tests.ops.tolerance import SUMS_IN_HALF
from tests.ops.windows import Window, max_pool_2d
from tests.support import in_double, litert
from tests.support.fixed_cases import fixed_cases
from tflgpu.options import KernelFamily, Precision

Array = NDArray[Any]
Compile = Callable[[bytes], tflgpu.CompiledModel]
Check = Callable[[Compile, str], None]
SHARED = Path(os.environ.get("TFLGPU_SHARED", Path(__file__).parents[3] / "shared"))

# Small ones, in which errors do not grow: some drivers compile each kernel for a second.
SMALL_MODELS = (
    "mobilenet_v1_0.25_224_1_default_1",
    "dtln_model_1",
    "face_landmark",
    "kws_ref_model_float32",
    "ad01_int8",
    "pretrainedResnet",
    "kws_ref_model",
    "keras_lstm_mnist_ptq",
)
LARGER_MODELS = ("face_detection_short_range", "selfie_segmenter", "trained_lstm", "yolox_nano_float16_quantize")
# How much more than others they make of rounding errors.
AMPLIFY = {"selfie_segmenter": 4.0, "yolox_nano_float16_quantize": 4.0}
# If sums are in half, the small models are off by up to 5.7% of the range, for pixels that they are not made for.
OF_THE_RANGE = TOLERANCE | {"fp16_fast": 8e-2}
# The 8-bit weights of a float model, for which LiteRT's CPU rounds activations, too.
JUDGED_IN_DOUBLE = ("kws_ref_model_float32",)

# The first example of hypothesis is always the simplest: an image of few pixels, and no chain but a product.
TWO_EXAMPLES = settings(
    max_examples=2,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Program(NamedTuple):
    """How a model is compiled."""

    kernels: KernelFamily
    precision: Precision

    def __str__(self) -> str:
        return f"{self.kernels} kernels, {self.precision}"


IN_HALF = (Program("gpu", "fp16_fast"), Program("cpu", "fp16_fast"))
BY_DEFAULT = (Program("auto", "fp32"), Program("auto", "fp16"))
PROGRAMS = (Program("gpu", "fp32"), Program("gpu", "fp16"), Program("cpu", "fp32"), Program("cpu", "fp16"))


@dataclass(frozen=True)
class Subject:
    """Something that devices compute. ``check`` raises AssertionError where a precision's results are wrong.

    in_half: whether fp16_fast computes it otherwise than fp16, and rightly.
    """

    name: str
    check: Check = field(repr=False)
    in_half: bool = True

    def programs(self, device: tflgpu.Device) -> tuple[Program, ...]:
        return PROGRAMS + (IN_HALF if self.in_half and device.limits.half_arithmetic else ())


def whole_table() -> list[Subject]:
    rows = [of_row(row, fused) for row, fused in product(ROWS, (False, True))]
    return rows + [large_pool()] + of_templates() + [of_model(name) for name in SMALL_MODELS + LARGER_MODELS]


def sample() -> Iterator[tuple[Subject, Program]]:
    """A row of every second operator, and the smaller models with the kernels that they get by default."""
    first = [*{row.op: row for row in reversed(ROWS)}.values()]
    yield from zip([of_row(row, fused=True) for row in first[::2]], cycle(PROGRAMS), strict=False)
    yield large_pool(), Program("cpu", "fp32")
    yield from zip(map(of_model, SMALL_MODELS), cycle(BY_DEFAULT), strict=False)


def of_row(row: Row, fused: bool) -> Subject:
    def check_row(compiled: Compile, precision: str) -> None:
        in_half = precision == "fp16_fast"
        case = drawn(row, fused, in_half)
        if in_half:
            case = replace(case, tolerance=replace(case.tolerance, fp16=SUMS_IN_HALF[row.op]))
        check_case(case, compiled, precision)

    return Subject(f"{row.name} {'fused' if fused else 'alone'}", check_row, row.op in SUMS_IN_HALF)


@cache
def drawn(row: Row, fused: bool, computed: bool) -> Case:
    """A case of a row, the same in each process."""
    cases: list[Case] = []

    @TWO_EXAMPLES
    @seed(crc32(f"{row.name} {fused}".encode()))
    @given(data=st.data())
    def draw(data: st.DataObject) -> None:
        cases.append(data.draw(row.case(fused, computed=computed)))

    draw()
    return cases[-1]


def of_templates() -> list[Subject]:
    return [Subject(f"template {name}", partial(check_case, case)) for name, case in fixed_cases().items()]


def large_pool() -> Subject:
    """A CPU's work-item makes more turns of its loops here than in any row: some drivers count them."""
    net = Net(seed=1)
    x = net.input(net.normal((1, 256, 256, 4)))
    value = max_pool_2d(x.value, Window((9, 9), padding="SAME"))
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "filter_height": 9, "filter_width": 9}
    net.output(net.op("MAX_POOL_2D", [x], value, options, activation="NONE"))
    return Subject("large pool", partial(check_case, net.case()), in_half=False)


def check_case(case: Case, compiled: Compile, precision: str) -> None:
    case.check(compiled(case.model).run(case.inputs).values(), precision)


def of_model(name: str) -> Subject:
    def check_model(compiled: Compile, precision: str) -> None:
        model = compiled(path.read_bytes())
        inputs = [some_values(tensor.shape, np.dtype(tensor.dtype)) for tensor in model.inputs]
        for got, expected in zip(model.run(inputs).values(), answers(path, inputs), strict=True):
            difference = error(got.astype(np.float64), expected.astype(np.float64))
            assert difference <= OF_THE_RANGE[precision] * AMPLIFY.get(name, 1.0), (
                f"off by {difference:.2e} of the range"
            )

    path = SHARED / "models" / f"{name}.tflite"
    return Subject(f"model {name}", check_model, name in SMALL_MODELS)


def some_values(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An image is a photograph: in noise a model may see nothing at all, and nothing has no range to compare with."""
    if len(shape) == 4 and shape[3] == 3:
        with Image.open(SHARED / "images" / "face.jpg") as file:
            pixels = np.asarray(file.convert("RGB").resize(shape[2:0:-1]), dtype)
        image: Array = pixels[None] / dtype.type(255)
        return image
    random = np.random.default_rng(0)
    return random.uniform(0, 1, shape).astype(dtype) if dtype.kind == "f" else random.integers(0, 100, shape, dtype)


def answers(path: Path, inputs: Sequence[Array]) -> list[Array]:
    if path.stem in JUDGED_IN_DOUBLE:
        return in_double.run(path.read_bytes(), *inputs)
    return [*litert.run(path.read_bytes(), *inputs).values()]
