"""Entry points: the inputs and outputs that a file names, and the graph in between, which may be nothing, or less than
its signature says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import tflgpu
from tests.support.litert import kept_interpreter, run, run_again
from tests.support.models import Builder
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.model.tensor_info import Quantization
from tflgpu.options import Execution, Interface, Options

X = np.linspace(-1, 1, 4, dtype=np.float32)[None]


def stale_signature(side: Literal["inputs", "outputs"]) -> bytes:
    """SIN and COS, between which there is what the signature calls its input x or its output z."""
    builder = Builder()
    x = builder.input((1, 4), name="x")
    y = builder.add("SIN", [x], (1, 4), name="y")
    z = builder.add("COS", [y], (1, 4), name="z")
    file = unpacked(builder.finish([z], signature="default"))
    getattr(file.signatureDefs[0], side)[0].tensorIndex = y
    return packed(file)


def test_an_output_that_a_signature_alone_has_is_one_more() -> None:
    data = stale_signature("outputs")
    got = tflgpu.compile(data, Options(fallback="forbid")).run(X)
    assert list(got) == ["z_0", "z"]
    np.testing.assert_allclose(got["z_0"], np.cos(np.sin(X)), atol=1e-6)
    np.testing.assert_allclose(got["z"], np.sin(X), atol=1e-6)


def test_the_interpreter_has_what_a_signature_alone_has() -> None:
    interpreter = tflgpu.Interpreter(model_content=stale_signature("outputs"))
    assert interpreter.get_signature_list() == {"default": {"inputs": ["x"], "outputs": ["z"]}}
    (got,) = interpreter.get_signature_runner("default")(x=X).values()
    np.testing.assert_allclose(got, np.sin(X), atol=1e-6)
    np.testing.assert_allclose(
        interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), np.cos(np.sin(X)), atol=1e-6
    )


def test_an_input_that_a_signature_alone_has_is_an_error_for_that_signature() -> None:
    data = stale_signature("inputs")
    np.testing.assert_allclose(tflgpu.compile(data).run({"x": X})["z"], np.cos(np.sin(X)), atol=1e-6)
    with pytest.raises(ValueError, match=r"signature 'default' has inputs \['x'\], which are no inputs of"):
        tflgpu.compile(data, Options(interface=Interface(signature="default")))


def test_a_model_without_operators_gives_its_inputs_and_constants(shared: Path) -> None:
    builder, constant = Builder(), np.arange(3, dtype=np.float32)
    x = builder.input((1, 4), name="x")
    data = builder.finish([builder.constant(constant, name="c"), x])
    assert tflgpu.inspect(data).operators == ()
    assert list(map(np.ndarray.tolist, tflgpu.compile(data).run(X).values())) == [constant.tolist(), X.tolist()]
    data = (shared / "faults/R4_no_operators.tflite").read_bytes()
    values = [np.array([[v]], np.float32) for v in (1, 2, 3)]
    names = [d["name"] for d in kept_interpreter(data).get_input_details()]
    model = tflgpu.compile(data, Options(fallback="forbid"))
    assert len(names) == len(model.inputs)
    np.testing.assert_array_equal([*model.run(values).values()], run_again(kept_interpreter(data), values))


@pytest.mark.parametrize("scale", [0.0, 4.6e-41])
def test_an_activation_that_is_always_zero(scale: float) -> None:
    """Quantizers give it a scale by which nothing can be divided."""
    builder = Builder()
    x = builder.input((1, 4))
    grid = Quantization([1.0], [0])
    q, r = (builder.tensor((1, 4), "int8", quantization=grid) for _ in range(2))
    builder.op("QUANTIZE", [x], [q])
    builder.op("RELU", [q], [r])
    y = builder.add("DEQUANTIZE", [r], (1, 4))
    file = unpacked(builder.finish([y]))
    file.subgraphs[0].tensors[r].quantization.scale = [scale]
    for kernels in ("cpu", "gpu"):
        (got,) = (
            tflgpu.compile(packed(file), Options(execution=Execution(kernels=kernels), fallback="forbid"))
            .run(X)
            .values()
        )
        np.testing.assert_allclose(got, np.zeros((1, 4)), atol=1e-30)


def test_a_denormal_scale(shared: Path) -> None:
    data = (shared / "faults/R8_denormal_scale.tflite").read_bytes()
    (got,) = tflgpu.compile(data, Options(fallback="forbid")).run(np.arange(4, dtype=np.int8)[None]).values()
    np.testing.assert_allclose(got, np.zeros((1, 6)), atol=1e-30)


def _rescaling(given: str, made: str) -> bytes:
    builder = Builder()
    x = builder.input((1, 4), given, quantization=Quantization([0.5], [0]))
    return builder.finish([builder.add("QUANTIZE", [x], (1, 4), made, quantization=Quantization([0.125], [0]))])


@pytest.mark.parametrize(("given", "made"), [("int16", "int32"), ("int32", "int8")])
def test_integers_that_the_device_does_not_rescale(given: str, made: str) -> None:
    data, values = _rescaling(given, made), np.array([[-128, 3, 4, 127]], given)
    with pytest.warns(tflgpu.FallbackWarning, match="1 of 1 operator runs on the CPU"):
        (got,) = tflgpu.compile(data).run(values).values()
    np.testing.assert_array_equal(got, *run(data, values).values())


def test_integers_that_only_small_devices_rescale() -> None:
    """TensorFlow Lite Micro has a kernel from int8 to int32, and LiteRT has none."""
    with pytest.raises(tflgpu.UnsupportedError, match=r"it makes int32 values(.|\n)*LiteRT's interpreter refuses"):
        tflgpu.compile(_rescaling("int8", "int32"))


@pytest.mark.parametrize("dtype", ["string", "resource"])
def test_an_input_without_numbers_that_nothing_reads_is_not_asked_for(dtype: str) -> None:
    builder = Builder()
    builder.input((1,), dtype, name="unused")
    x = builder.input((1, 4), name="x")
    data = builder.finish([builder.add("SIN", [builder.without_kernel(x)], name="y")])
    with pytest.warns(tflgpu.FallbackWarning):
        model = tflgpu.compile(data)
    assert [each.name for each in model.inputs] == ["x"]
    np.testing.assert_allclose(model.run(X)["y"], np.sin(X), atol=1e-6)
