"""Other input shapes than the file's, and operators that the caller sends to the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.acceptance.real_models import MOBILENET
from tests.quick import on_first_runtime
from tests.support import litert
from tests.support.models import Builder
from tflgpu.options import CpuPart, Options, Shapes
from tflgpu.runtime.runner import MAX_INSTANCES

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"


def dynamic(batch_constant: int = -1) -> bytes:
    """softmax(x * scale) as rows of 6, from images of any batch and height; the RESHAPE asks for ``batch_constant``."""
    builder = Builder()
    x = builder.input((1, 4, 6), shape_signature=(-1, -1, 6), name="x")
    scaled, rows, y = (builder.tensor(s, name=n) for s, n in (((1, 4, 6), "s"), ((4, 6), "r"), ((4, 6), "y")))
    builder.op("MUL", [x, builder.constant(np.linspace(1, 2, 6, dtype=np.float32))], [scaled])
    shape = [-1, 6] if batch_constant == -1 else [batch_constant, 6]
    builder.op("RESHAPE", [scaled, builder.ints(shape)], [rows], {})
    builder.op("SOFTMAX", [rows], [y], {"beta": 1.0})
    return builder.finish([y])


def expected_rows(x: np.ndarray) -> np.ndarray:
    e = np.exp((x * np.linspace(1, 2, 6)).reshape(-1, 6).astype(np.float64))
    return e / e.sum(-1, keepdims=True)


def test_free_dimensions_take_any_size(device_name: str) -> None:
    model = tflgpu.compile(dynamic(), Options(precision="fp32", device=device_name))
    assert model.inputs[0].free_axes == (0, 1)
    rng = np.random.default_rng(0)
    for shape in ((1, 4, 6), (3, 5, 6), (2, 4, 6), (1, 4, 6), (3, 5, 6)):
        x = rng.standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(model.run(x)["y"], expected_rows(x), atol=1e-6)
    with pytest.raises(ValueError, match=r"shape \[1, 4, 5\]; \[any, any, 6\] was expected"):
        model.run(np.zeros((1, 4, 5), np.float32))


def test_only_the_latest_plans_are_kept(device_name: str) -> None:
    model = tflgpu.compile(dynamic(), Options(precision="fp32", device=device_name))
    for height in (1, 2, 3, 5, 6, 7, 1):
        x = np.full((1, height, 6), 0.5, np.float32)
        np.testing.assert_allclose(model.run(x)["y"], expected_rows(x), atol=1e-6)
    assert [shapes[0][1] for shapes in model._runner.instances] == [5, 6, 7, 1][-MAX_INSTANCES:]


@pytest.mark.parametrize("shapes", [Shapes(batch=3), Shapes(inputs={"image": (3, 8, 8, 1)})], ids=["batch", "shapes"])
def test_a_batch_is_as_many_single_runs(shapes: Shapes, device_name: str) -> None:
    """The file has a batch of 1, in its input and in the constant of a RESHAPE."""
    single = tflgpu.compile(DIGITS, Options(precision="fp32", device=device_name))
    batched = tflgpu.compile(DIGITS, Options(precision="fp32", device=device_name, shapes=shapes))
    images = np.load(DIGITS.with_name("held_out.npz"))["images"][:3, ..., None].astype(np.float32) / 16
    got = batched.run(images)["probabilities"]
    assert batched.inputs[0].shape == (3, 8, 8, 1) and batched.outputs[0].shape == got.shape == (3, 10)
    expected = np.concatenate([single.run(image[None])["probabilities"] for image in images])
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize(("exported", "batch"), [(1, 3), (2, 1)], ids=["other batch", "wrong file"])
def test_a_transposed_convolution_takes_the_batch_of_its_image(exported: int, batch: int, device_name: str) -> None:
    """The constant of its output shape has the batch that was exported. LiteRT's default path goes by the image too."""
    builder, rng = Builder(), np.random.default_rng(0)
    x = builder.input((1, 3, 3, 4), name="x")
    shape = builder.ints([exported, 6, 6, 5])
    weights = builder.constant(rng.standard_normal((5, 3, 3, 4)).astype(np.float32))
    y = builder.add("TRANSPOSE_CONV", [shape, weights, x], (exported, 6, 6, 5), name="y", stride_h=2, stride_w=2)
    data = builder.finish([y])
    images = rng.standard_normal((batch, 3, 3, 4)).astype(np.float32)
    options = Options(precision="fp32", device=device_name, shapes=Shapes(batch=batch), fallback="forbid")
    (got,) = tflgpu.compile(data, options).run(images).values()
    expected = [*(litert.run(data, image[None])["y"] for image in images)]
    np.testing.assert_allclose(got, np.concatenate(expected), atol=1e-5)


@pytest.mark.quick(when=on_first_runtime)
def test_mobilenet_takes_a_batch(device_name: str, shared: Path) -> None:
    x = np.concatenate([MOBILENET.input(shared, image) for image in ("cat.png", "bird.png")])
    path = MOBILENET.path(shared)
    (got,) = tflgpu.compile(path, Options(precision="fp32", device=device_name, shapes=Shapes(batch=2))).run(x).values()
    for i in range(2):
        (expected,) = litert.run(path.read_bytes(), x[i : i + 1]).values()
        np.testing.assert_allclose(got[i : i + 1], expected, atol=1e-4 * np.ptp(expected))


def test_a_batch_that_the_model_does_not_carry_is_refused() -> None:
    builder = Builder()
    x = builder.input((1, 4), name="x")
    begin, size = (builder.ints(v) for v in ([0, 0], [1, 4]))
    y = builder.add("SLICE", [x, begin, size], (1, 4), name="y")
    with pytest.raises(ValueError, match=r"output 'y' then has shape \[1, 4\]"):
        tflgpu.inspect(builder.finish([y]), Options(shapes=Shapes(batch=2)))


def test_wrong_shapes_say_what_was_expected() -> None:
    with pytest.raises(
        ValueError, match=r"\[4, 4\] for 'x'; 3 positive sizes were expected, the file has \[-1, -1, 6\]"
    ):
        tflgpu.inspect(dynamic(), Options(shapes=Shapes(inputs={"x": (4, 4)})))
    with pytest.raises(ValueError, match=r"names \['z'\]; the model has the inputs 'x'"):
        tflgpu.inspect(dynamic(), Options(shapes=Shapes(inputs={"z": (4, 4)})))
    with pytest.raises(ValueError, match="batch is 0"):
        Options(shapes=Shapes(batch=0))


def test_other_shapes_of_a_model_that_needs_the_cpu(device_name: str) -> None:
    """LiteRT tells which shapes the CPU's operators give, so that the device has its part."""
    builder = Builder()
    x = builder.input((1, 4), name="x", shape_signature=(-1, 4))
    y = builder.add("TANH", [x], (1, 4), name="y")
    z = builder.without_kernel(y, name="z")
    with pytest.warns(tflgpu.FallbackWarning):
        model = tflgpu.compile(builder.finish([z]), Options(precision="fp32", device=device_name))
    shapes = Options(shapes=Shapes(inputs={"x": (3, 4)}))
    assert [o.device for o in tflgpu.inspect(builder.finish([z]), shapes).operators] == ["device", "cpu"]
    for rows in (1, 3):
        given = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        np.testing.assert_allclose(model.run(given)["z"], np.tanh(given), atol=1e-6)


@pytest.mark.parametrize("cpu_ops", [["SOFTMAX"], [11], [range(3, 6), "SOFTMAX"]], ids=["code", "index", "range"])
def test_operators_can_be_sent_to_the_cpu(cpu_ops: list[str | int | range], device_name: str) -> None:
    expected = tflgpu.compile(DIGITS, Options(precision="fp32", device=device_name))
    indices = {i for item in cpu_ops for i in (item if isinstance(item, range) else [item])}
    with pytest.warns(tflgpu.FallbackWarning, match="Options.cpu_part.operators sends it to the CPU"):
        model = tflgpu.compile(
            DIGITS, Options(precision="fp32", device=device_name, cpu_part=CpuPart(operators=cpu_ops))
        )
    sent = [o for o in model.report.operators if o.device == "cpu"]
    assert sent and all(o.index in indices or o.code in indices for o in sent)
    image = np.load(DIGITS.with_name("held_out.npz"))["images"][:1, ..., None].astype(np.float32) / 16
    np.testing.assert_allclose(model.run(image)["probabilities"], expected.run(image)["probabilities"], atol=1e-6)


def test_operators_that_are_not_there_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="names 'TANGENT', but the model has"):
        tflgpu.inspect(DIGITS, Options(cpu_part=CpuPart(operators=["TANGENT"])))
    with pytest.raises(TypeError, match="give a list of operators"):
        Options(cpu_part=CpuPart(operators="SOFTMAX"))
