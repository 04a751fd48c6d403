"""Files that were refused or answered wrongly once: LiteRT's answers in fp32."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.acceptance.litert_process import Arrays, answers
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Interface, Options

FP32 = Options(precision="fp32")


@dataclass(frozen=True)
class File:
    """A file of a folder of the shared ones. tolerance: error allowed, as a part of the largest value of an output."""

    folder: str
    name: str
    tolerance: float = 1e-5

    def path(self, shared: Path) -> Path:
        return shared / self.folder / f"{self.name}.tflite"


# LiteRT rounds the activations of these at run time to 8 bits, and is off by 0.3% of range. tflgpu computes in float,
# but for operators that it leaves to LiteRT, and where a CPU's integer unit is much faster.
# tests/kernels/test_stored_integers.py compares such layers with double.
ROUNDED = 2e-2

# A scale just above the denormal ones: LiteRT's products by it are zero, those by the least normal scale are not.
NEXT_TO_ZERO = 1e-30

FILES = (
    File("faults", "R1_first_rows_const"),
    File("faults", "R1b_yolov8_dist2bbox"),
    File("faults", "R1c_pos_embed_first_tokens"),
    File("faults", "R2_blockwise_int4", ROUNDED),
    File("faults", "R2_blockwise_int4_zero_rows", ROUNDED),
    File("faults", "R3_external_buffers"),
    File("faults", "R4_no_operators"),
    File("faults", "R7_int4_fc", ROUNDED),
    File("faults", "R8_denormal_scale"),
    File("faults", "R9_sum_fp16"),
    File("faults", "composite_group_norm"),
    File("faults", "composite_l2_norm"),
)


def drawn(info: TensorInfo, rng: np.random.Generator) -> NDArray[Any]:
    if np.dtype(info.dtype).kind in "iu":
        limits = np.iinfo(info.dtype)
        return rng.integers(limits.min, limits.max + 1, info.shape).astype(info.dtype)
    return rng.standard_normal(info.shape).astype(info.dtype)


def check(file: File, found: Arrays, expected: Arrays) -> None:
    assert found.keys() == expected.keys()
    for name, right in expected.items():
        assert found[name].shape == right.shape
        largest = float(np.abs(right).max())
        np.testing.assert_allclose(found[name], right, rtol=0, atol=file.tolerance * largest + NEXT_TO_ZERO)


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_litert_answers(file: File, shared: Path) -> None:
    path, rng = file.path(shared), np.random.default_rng(0)
    interpreter = tflgpu.Interpreter(path, options=FP32)
    keys = list(interpreter.get_signature_list()) or [None]
    models = {key: tflgpu.compile(path, Options(precision="fp32", interface=Interface(signature=key))) for key in keys}
    inputs = {key: {info.name: drawn(info, rng) for info in model.inputs} for key, model in models.items()}
    expected = answers(path, inputs)
    for key, model in models.items():
        check(file, model.run(inputs[key]), expected[key])
    if (last := keys[-1]) is not None:
        check(file, interpreter.get_signature_runner(last)(**inputs[last]), expected[last])
