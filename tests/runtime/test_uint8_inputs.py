"""Float inputs that callers give as bytes: the device computes (byte - mean) / std."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.support.models import Builder

SHAPE = (1, 6, 5, 3)


def two_inputs() -> bytes:
    """exp(x), and z = x + y of two images of 3 channels."""
    builder = Builder()
    x, y = builder.input(SHAPE, name="x"), builder.input(SHAPE, name="y")
    curve = builder.add("EXP", [x], SHAPE, name="exp")
    total = builder.add("ADD", [x, y], SHAPE, name="z")
    return builder.finish([curve, total])


def image(seed: int = 0, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*SHAPE[:3], channels), np.uint8)


@pytest.mark.parametrize(
    ("mean", "std", "executor"),
    [(127.5, 127.5, "persistent"), *((mean, std, "launch") for mean, std in ((127.5, 127.5), (0, 255), (100, -3.5)))],
)
def test_bytes_are_normalized_on_the_device(mean: float, std: float, executor: str, device_name: str) -> None:
    options = tflgpu.Options(
        device=device_name,
        precision="fp32",
        execution=tflgpu.Execution(executor=executor, kernels="gpu"),
        interface=tflgpu.Interface(uint8_inputs={"x": (mean, std)}),
    )
    model = tflgpu.compile(two_inputs(), options)
    assert [i.dtype for i in model.inputs] == ["uint8", "float32"]
    x, y = (image().astype(np.float64) - mean) / std, image(1).astype(np.float32)
    got = model.run({"x": image(), "y": y})
    np.testing.assert_allclose(got["exp"], np.exp(x), rtol=1e-4)
    np.testing.assert_allclose(got["z"], x + y, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="element type float32; uint8 was expected"):
        model.run({"x": y, "y": y})


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("precision, tolerance", [("fp32", 1e-5), ("fp16", 5e-3)])
def test_frames_into_a_convolution(channels: int, precision: str, tolerance: float, device_name: str) -> None:
    random = np.random.default_rng(2)
    weights = random.normal(size=(8, 1, 1, channels)).astype(np.float32)
    builder = Builder()
    x = builder.input((*SHAPE[:3], channels), name="x")
    options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 1}
    operands = [x, builder.constant(weights), builder.constant(np.zeros(8, np.float32))]
    y = builder.add("CONV_2D", operands, (*SHAPE[:3], 8), **options)
    model = tflgpu.compile(
        builder.finish([y]),
        tflgpu.Options(
            device=device_name, precision=precision, interface=tflgpu.Interface(uint8_inputs={"x": (127.5, 127.5)})
        ),
    )
    frame = image(3, channels)
    (got,) = model.run(frame).values()
    expected = ((frame / 127.5 - 1) @ weights[:, 0, 0].T.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(got, expected, atol=tolerance * np.ptp(expected))


def test_the_cache_tells_them_apart(device_name: str) -> None:
    results = []
    for pair in ((0.0, 1.0), (0.0, 2.0), (0.0, 1.0)):
        options = tflgpu.Options(
            device=device_name, precision="fp32", interface=tflgpu.Interface(uint8_inputs={"x": pair, "y": pair})
        )
        results.append(tflgpu.compile(two_inputs(), options).run([image(), image(1)])["z"])
    np.testing.assert_array_equal(results[0], results[2])
    np.testing.assert_array_equal(results[0], image().astype(np.float32) + image(1))
    np.testing.assert_array_equal(results[1] * 2, results[0])


def test_what_does_not_fit_is_refused(device_name: str) -> None:
    with pytest.raises(ValueError, match="std 0 for 'x'"):
        tflgpu.Options(interface=tflgpu.Interface(uint8_inputs={"x": (0, 0)}))
    with pytest.raises(ValueError, match=r"names 'w'; the model has the inputs \['x', 'y'\]"):
        tflgpu.inspect(two_inputs(), tflgpu.Options(interface=tflgpu.Interface(uint8_inputs={"w": (0, 1)})))
    with pytest.raises(tflgpu.UnsupportedError, match="uint8_inputs is for models that run on the device as one piece"):
        tflgpu.compile(
            two_inputs(),
            tflgpu.Options(
                device=device_name,
                cpu_part=tflgpu.CpuPart(operators=["EXP"]),
                interface=tflgpu.Interface(uint8_inputs={"x": (0, 1)}),
            ),
        )
    builder = Builder()
    x = builder.input((1, 4), "int32", name="x")
    y = builder.add("ABS", [x], (1, 4), "int32")
    with pytest.raises(ValueError, match="names 'x', which is int32, not float32"):
        tflgpu.inspect(builder.finish([y]), tflgpu.Options(interface=tflgpu.Interface(uint8_inputs={"x": (0, 1)})))
