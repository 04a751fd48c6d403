"""Complex tensors, as in front ends of audio models: all that touches them runs on the device, or all on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.support.models import Builder
from tflgpu.options import CpuPart, Options

pytestmark = pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")

FRAMES, LENGTH = 3, 16
PARTS = {"COMPLEX_ABS": np.abs, "REAL": np.real, "IMAG": np.imag}


def add_parts(builder: Builder, numbers: int, shape: tuple[int, ...]) -> list[int]:
    """The squares of what the operators of ``PARTS`` give."""
    outputs = []
    for code in PARTS:
        part = builder.add(code, [numbers], shape)
        square = builder.add("SQUARE", [part], shape, name=code)
        outputs.append(square)
    return outputs


def spectrogram() -> bytes:
    builder = Builder()
    frames = builder.input((1, FRAMES, 1, LENGTH))
    window = builder.constant(np.hanning(LENGTH).astype(np.float32))
    windowed = builder.add("MUL", [frames, window], (1, FRAMES, 1, LENGTH))
    shape = (1, FRAMES, 1, LENGTH // 2 + 1)
    numbers = builder.add("RFFT2D", [windowed, builder.ints([1, LENGTH])], shape, "complex64", name="numbers")
    return builder.finish([*add_parts(builder, numbers, shape), numbers])


@pytest.mark.parametrize("through_interpreter", [False, True])
def test_spectrograms(through_interpreter: bool, device_name: str) -> None:
    x = np.random.default_rng(0).normal(size=(1, FRAMES, 1, LENGTH)).astype(np.float32)
    numbers = np.fft.rfft(x.astype(np.float64) * np.hanning(LENGTH))
    options = Options(precision="fp32", device=device_name)
    if through_interpreter:
        interpreter = tflgpu.Interpreter(model_content=spectrogram(), options=options)
        interpreter.allocate_tensors()
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
        interpreter.invoke()
        got = {d["name"]: interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()}
    else:
        got = tflgpu.compile(spectrogram(), options).run(x)
    assert got["numbers"].dtype == np.complex64
    np.testing.assert_allclose(got["numbers"], numbers, atol=1e-5)
    for code, part in PARTS.items():
        np.testing.assert_allclose(got[code], part(numbers) ** 2, rtol=1e-4, atol=1e-5)


def test_complex_inputs(device_name: str) -> None:
    builder = Builder()
    numbers = builder.input((3, 5), "complex64")
    model = tflgpu.compile(
        builder.finish(add_parts(builder, numbers, (3, 5))), Options(precision="fp32", device=device_name)
    )
    given = np.array([3 + 4j, -1 - 1j, 2j] * 5, np.complex64).reshape(3, 5)
    got = model.run(given)
    for code, part in PARTS.items():
        np.testing.assert_allclose(got[code], part(given) ** 2, rtol=1e-6)


@pytest.mark.parametrize("on_cpu", [(), ("COMPLEX_ABS",), ("RESHAPE",), ("RFFT2D",)])
def test_complex_numbers_do_not_cross(on_cpu: tuple[str, ...], device_name: str) -> None:
    """One operator on the CPU takes all there that hand each other complex numbers, and nothing else."""
    builder = Builder()
    x = builder.add("NEG", [builder.input((FRAMES, 8))], (FRAMES, 8))
    numbers = builder.add("RFFT2D", [x, builder.ints([1, 8])], (1, 5), "complex64")
    flat = builder.add("RESHAPE", [numbers, builder.ints([5])], (5,), "complex64")
    result = builder.add("EXP", [builder.add("COMPLEX_ABS", [flat], (5,))], (5,))
    options = Options(precision="fp32", device=device_name, cpu_part=CpuPart(operators=on_cpu))
    model = tflgpu.compile(builder.finish([result]), options)
    places = {o.code: o.device for o in model.report.operators}
    side = "cpu" if on_cpu else "device"
    assert places == {"NEG": "device", "RFFT2D": side, "RESHAPE": side, "COMPLEX_ABS": side, "EXP": "device"}
    given = np.random.default_rng(0).normal(size=(FRAMES, 8)).astype(np.float32)
    (got,) = model.run(given).values()
    np.testing.assert_allclose(got, np.exp(np.abs(np.fft.rfft(-given[0].astype(np.float64)))), rtol=1e-5)
