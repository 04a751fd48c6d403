"""Models of dynamic range on CPUs with an integer unit: rows and images that are quantized at run time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tflgpu
from tests.ops.windows import Window, conv_2d
from tests.support.integer_weights import Weights, constant, draw, finished, layer
from tests.support.models import Builder
from tests.support.targets import CPU
from tflgpu.compiler import compile_model
from tflgpu.frontend.lower import lower
from tflgpu.graph.ir import Array
from tflgpu.kernels.integers import integer_products
from tflgpu.model.reader import read_model
from tflgpu.target import Target

SHAPES = {
    "one row": ((1, 1024), 300),
    "one row of few": ((1, 6), 40),
    "rows, no whole vectors": ((13, 127), 35),
    "rows, parts of the depth": ((50, 1300), 77),
    "pixels": ((1, 11, 7, 64), 48),
    "images of no whole slices": ((2, 5, 3, 30), 21),
    "fewer pixels than a vector": ((1, 1, 3, 700), 40),
}


def model(shape: tuple[int, ...], weights: Weights, bias: Array | None = None) -> bytes:
    """A layer, or a convolution of an image, pointwise where the weights have two axes."""
    if len(shape) == 2:
        return layer(weights, shape[0], bias)
    builder = Builder()
    x, out = builder.input(shape, name="x"), weights.integers.shape[0]
    window = weights.integers.shape[1:-1] or (1, 1)
    image = replace(weights, integers=weights.integers.reshape(out, *window, -1))
    w = constant(builder, image)
    inputs = [x, w] if bias is None else [x, w, builder.constant(bias.astype(np.float32))]
    options = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    return finished(builder, [builder.add("CONV_2D", inputs, (*shape[:-1], out), name="y", **options)], {w: image})


def on_grids(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Rows that lie on 256 steps, each on steps of its own, and reach both ends: to quantize them changes nothing."""
    rows = int(np.prod(shape[:-1]))
    integers = random.integers(0, 256, (rows, shape[-1]))
    integers[:, 0], integers[:, -1] = 0, 255
    steps, zeros = 2.0 ** random.integers(-8, 8, (rows, 1)), random.integers(0, 256, (rows, 1))
    return ((integers - zeros) * steps).reshape(shape).astype(np.float32)


def quantize_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let integers be faster, whatever it takes to quantize rows."""
    monkeypatch.setattr(integer_products, "dynamic_pays", lambda *_: True)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", SHAPES)
def test_rows_on_grids_are_multiplied_exactly(
    name: str, precision: Any, device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, out = SHAPES[name]
    random = np.random.default_rng(out)
    weights, bias = draw(random, (out, shape[-1]), 8), random.normal(size=out)
    x = on_grids(random, shape)
    expected = x.reshape(-1, shape[-1]).astype(np.float64) @ weights.values.T + bias
    quantize_always(monkeypatch)
    options = tflgpu.Options(device=device_name, precision=precision, cache="off")
    with tflgpu.compile(model(shape, weights, bias), options) as compiled:
        integers = compiled.report.integers
        if integers is None or integers.unit is None:
            pytest.skip("no integer unit")
        if precision == "fp32":  # in fp16 weights of convolutions are stored as whole numbers
            assert integers.products == 1
        result = compiled.run([x])["y"].reshape(expected.shape)
    magnitude = np.abs(x.reshape(-1, shape[-1])) @ np.abs(weights.values.T)
    assert (np.abs(result - expected) <= 1e-6 * magnitude + 1e-6).all()


def test_special_rows(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN or an infinity spoils its own row, and zeros and denormals give the bias."""
    random = np.random.default_rng(0)
    weights, bias = draw(random, (40, 64), 8), random.normal(size=40)
    x = random.normal(size=(6, 64)).astype(np.float32)
    x[0, 5], x[1, 7], x[2], x[3] = np.nan, np.inf, 0, 1e-42
    x[4] *= 1e37
    quantize_always(monkeypatch)
    with tflgpu.compile(layer(weights, 6, bias), tflgpu.Options(device=device_name, cache="off")) as compiled:
        if compiled.report.integers is None or not compiled.report.integers.products:
            pytest.skip("no integer unit")
        result = compiled.run([x])["y"]
    assert np.isnan(result[0]).all()
    assert not np.isfinite(result[1]).any()
    np.testing.assert_allclose(result[2:4], np.broadcast_to(bias, (2, 40)), rtol=1e-6)
    exact = x[4:].astype(np.float64) @ weights.values.T + bias
    steps = (np.maximum(x[4:].max(axis=1), 0) - np.minimum(x[4:].min(axis=1), 0)) / 255
    bound = 0.51 * steps[:, None].astype(np.float64) * np.abs(weights.values).sum(axis=1)
    assert (np.abs(result[4:] - exact) <= bound).all()


def test_no_further_from_double_than_litert(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    random = np.random.default_rng(1)
    weights = draw(random, (96, 256), 8)
    x = (random.normal(size=(1, 9, 9, 256)) * np.exp(random.normal(size=(1, 9, 9, 1)))).astype(np.float32)
    file = model(x.shape, weights, np.zeros(96))
    quantize_always(monkeypatch)
    with tflgpu.compile(file, tflgpu.Options(device=device_name, precision="fp32", cache="off")) as compiled:
        ours = compiled.run([x])["y"]
    peer = interpreter.Interpreter(model_content=file)
    peer.allocate_tensors()
    peer.set_tensor(peer.get_input_details()[0]["index"], x)
    peer.invoke()
    theirs = peer.get_tensor(peer.get_output_details()[0]["index"])
    exact = x.astype(np.float64) @ weights.values.T
    errors = [np.sqrt(np.square(result - exact).mean()) for result in (ours, theirs)]
    assert errors[0] <= 1.02 * errors[1]


@st.composite
def convolutions(draw_from: st.DrawFn) -> tuple[bytes, Array, Weights, Window]:
    """A convolution of any window, on an image of drawn magnitudes that has a NaN now and then."""
    kernel = draw_from(st.tuples(st.integers(1, 4), st.integers(1, 5)))
    stride, dilation = draw_from(st.tuples(st.integers(1, 3), st.integers(1, 3))), (1, 1)
    if stride == (1, 1):
        dilation = draw_from(st.tuples(st.integers(1, 2), st.integers(1, 3)))
    window = Window(kernel, stride, dilation, draw_from(st.sampled_from(("SAME", "VALID"))))
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    height, width = (draw_from(st.integers(low, low + 24)) for low in least)
    channels, out = draw_from(st.integers(5, 40)), draw_from(st.integers(1, 40))
    random = np.random.default_rng(draw_from(st.integers(0, 1 << 20)))
    weights = draw(random, (out, *kernel, channels), 8)
    x = random.normal(size=(draw_from(st.integers(1, 2)), height, width, channels))
    x = np.maximum(x, draw_from(st.sampled_from((-10.0, 0.0)))) * np.exp(random.normal(size=(1, height, width, 1)))
    if draw_from(st.integers(0, 4)) == 0:
        x[tuple(random.integers(0, size) for size in x.shape)] = np.nan
    builder = Builder()
    options = {"stride_h": stride[0], "stride_w": stride[1], "padding": window.padding}
    options |= {"dilation_h_factor": dilation[0], "dilation_w_factor": dilation[1]}
    w = constant(builder, weights)
    shape = conv_2d(x, weights.values, np.zeros(out), window).shape
    y = builder.add("CONV_2D", [builder.input(x.shape, name="x"), w], shape, name="y", **options)
    return finished(builder, [y], {w: weights}), x.astype(np.float32), weights, window


@given(drawn=convolutions())
@settings(max_examples=6, deadline=None)
def test_windows(drawn: tuple[bytes, Array, Weights, Window], device_name: str) -> None:
    """Each sum is off by at most half a step of what the windows of all pixels see, for each weight."""
    file, x, weights, window = drawn
    with pytest.MonkeyPatch.context() as monkeypatch:
        quantize_always(monkeypatch)
        compiled = tflgpu.compile(file, tflgpu.Options(device=device_name, precision="fp32", cache="off"))
    with compiled:
        if compiled.report.integers is None or compiled.report.integers.unit is None:
            pytest.skip("no integer unit")
        assert compiled.report.integers.products == 1
        result = compiled.run([x])["y"]
    exact = conv_2d(x.astype(np.float64), weights.values, np.zeros(len(weights.values)), window)
    assert np.isnan(result[np.isnan(exact)]).all()
    numbers = ~np.isnan(result)
    assert numbers.all() or np.isnan(x).any()
    step = (np.nanmax(x, initial=0) - np.nanmin(x, initial=0)) / 255
    bound = 0.51 * step * np.abs(weights.values).reshape(len(weights.values), -1).sum(axis=1)
    assert (np.abs(result - exact) <= bound)[numbers].all()


def products(shape: tuple[int, ...], out: int, target: Target, window: tuple[int, ...] = (), **numerics: Any) -> int:
    """Kernels that multiply integers."""
    weights = draw(np.random.default_rng(0), (out, *window, shape[-1]), 8)
    options = tflgpu.Options(numerics=tflgpu.Numerics(**numerics))
    report = compile_model(model(shape, weights), options, target)[0].report.integers
    return report.products if report is not None else 0


@pytest.mark.parametrize(
    ("unit", "shape", "out", "window", "pays"),
    [
        ("avx512_vnni", (1, 28, 28, 96), 96, (), True),
        ("avx512_vnni", (1, 28, 28, 96), 96, (3, 3), True),
        ("avx512_vnni", (64, 512), 512, (), True),
        ("avx512_vnni", (64, 512), 4, (), False),  # to quantize a row takes as long as to multiply it
        ("avx2", (64, 512), 512, (), True),
        ("avx2", (1, 28, 28, 96), 96, (), False),  # the unit is hardly faster than floats
        ("avx2", (1, 28, 28, 96), 96, (3, 3), False),
        ("avx2", (1, 1024), 1024, (), True),  # floats of one row wait for their weights
    ],
)
def test_integers_where_they_are_much_faster(
    unit: str, shape: tuple[int, ...], out: int, window: tuple[int, ...], pays: bool
) -> None:
    limits = replace(CPU.limits, vector_width=8 if unit == "avx2" else 16)
    assert products(shape, out, replace(CPU, integer_unit=unit, limits=limits), window) == pays


def test_floats_where_they_are_asked_for() -> None:
    target = replace(CPU, integer_unit="avx512_vnni")
    assert products((64, 512), 512, target) == 1
    assert products((64, 512), 512, target, quantized="float") == 0
    assert products((64, 512), 512, CPU) == 0


def test_weights_that_are_dequantized_are_not_dynamic() -> None:
    """Where the file dequantizes weights itself, LiteRT multiplies floats."""
    builder = Builder()
    x = builder.input((8, 64), name="x")
    w = constant(builder, draw(np.random.default_rng(0), (32, 64), 8))
    floats = builder.add("DEQUANTIZE", [w], (32, 64))
    y = builder.add("FULLY_CONNECTED", [x, floats], (8, 32))
    z = builder.add("FULLY_CONNECTED", [x, w], (8, 32))
    for result, dynamic in ((y, False), (z, True)):
        graph = lower(read_model(builder.finish([result]))).graph
        (node,) = (n for n in graph.nodes if n.kind == "fully_connected")
        assert graph[node.inputs[1]].dynamic == dynamic
