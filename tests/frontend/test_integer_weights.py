"""Constants of 4 bits, and of blocks with a scale each: what the numbers are that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.support.integer_weights import Weights, constant, draw, finished, layer, sparse_layer, take_from_memory
from tests.support.models import Builder
from tests.support.planning import obstacles_of, plan_of
from tests.support.targets import CPU, H200
from tflgpu.codegen.link import link
from tflgpu.fallback.schema_objects import packed, unpacked
from tflgpu.model.quantization import dequantized
from tflgpu.model.reader import read_model
from tflgpu.model.sparsity import unpacked_nibbles
from tflgpu.options import KernelFamily, Quantized
from tflgpu.target import Target

pytest.importorskip("ai_edge_litert")


def test_the_lower_half_of_a_byte_comes_first() -> None:
    assert unpacked_nibbles(np.array([0x8F, 0x71, 0x0A], np.uint8), (5,)).tolist() == [-1, -8, 1, 7, -6]


@pytest.mark.parametrize(("bits", "block"), [(4, 0), (8, 0), (4, 32), (4, 96), (8, 48), (8, 40)])
def test_constants_are_dequantized(bits: int, block: int) -> None:
    weights = draw(np.random.default_rng(2), (7, 96), bits, block, signed=True, zeros="int32" if block else "")
    tensor = read_model(layer(weights, 1, None)).subgraphs[0].tensors[1]
    np.testing.assert_array_equal(dequantized(tensor), weights.values.astype(np.float32))


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no tensor": ({"scales": 100}, "tensor 100; the subgraph"),
    "a tensor before the first": ({"scales": -1}, "tensor -1; the subgraph has"),
    "scales of another shape": ({"blockSize": 16}, r"float16\[7, 3\]; constant numbers of shape \[7, 6\]"),
    "no block": ({"blockSize": 0}, "blocks of 0"),
    "zero points of another shape": ({"zeroPoints": 1}, r"zero points of its blocks in tensor 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_scales_of_blocks_that_do_not_fit_are_refused(fault: str) -> None:
    file = unpacked(layer(draw(np.random.default_rng(2), (7, 96), 4, 32), 1, None))
    assert obstacles_of(packed(file)) == ""
    fields, message = FAULTS[fault]
    for name, value in fields.items():
        setattr(file.subgraphs[0].tensors[1].quantization.details, name, value)
    with pytest.raises(tflgpu.ModelError, match=message):
        read_model(packed(file))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("block", "signed", "zeros"),
    [(0, True, ""), (32, True, ""), (32, False, "int8"), (32, True, "int32"), (24, True, ""), (40, True, "int8")],
)
@pytest.mark.parametrize("kernels", ["auto", "gpu"])
def test_layers_of_blocks_are_exact(
    bits: int, block: int, signed: bool, zeros: str, kernels: KernelFamily, device_name: str
) -> None:
    random = np.random.default_rng(bits + block)
    rounding: Quantized = "fake_quantize" if block else "float"  # rows of dynamic range are quantized
    weights, x = draw(random, (21, 96), bits, block, signed=signed, zeros=zeros), random.standard_normal((3, 96))
    options = tflgpu.Options(
        device=device_name,
        precision="fp32",
        cache="off",
        fallback="forbid",
        numerics=tflgpu.Numerics(quantized=rounding),
        execution=tflgpu.Execution(kernels=kernels),
    )
    with tflgpu.compile(layer(weights, 3, np.arange(21.0)), options) as compiled:
        (found,) = compiled.run([x.astype(np.float32)]).values()
    expected = x.astype(np.float32).astype(np.float64) @ weights.values.T + np.arange(21.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


def test_litert_never_computes_with_blocks() -> None:
    data = layer(draw(np.random.default_rng(2), (7, 96), 4, 32), 1, None)
    with pytest.raises(ValueError, match="LiteRT computes wrongly with the blocks of scales"):
        tflgpu.compile(data, tflgpu.Options(cpu_part=tflgpu.CpuPart(operators=["FULLY_CONNECTED"])))
    file = unpacked(data)
    file.subgraphs[0].operators[0].builtinOptions.weightsFormat = 1  # which no kernel of the device reads
    with pytest.raises(tflgpu.UnsupportedError, match="LiteRT computes wrongly with the blocks of scales"):
        tflgpu.compile(packed(file))


@pytest.mark.parametrize(("dtype", "has_scale"), [("int8", True), ("int8", False), ("float32", True)])
def test_sparse_layers_are_for_the_device(dtype: str, has_scale: bool, device_name: str) -> None:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    data, random = sparse_layer(dtype, has_scale=has_scale), np.random.default_rng(1)
    x = (random.integers(-128, 128, (3, 24)) / (1 if dtype == "int8" else 50)).astype(dtype)
    judge = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    judge.allocate_tensors()
    judge.set_tensor(judge.get_input_details()[0]["index"], x)
    judge.invoke()
    expected = judge.get_tensor(judge.get_output_details()[0]["index"]).astype(np.float64)
    with tflgpu.compile(data, tflgpu.Options(device=device_name, cache="off", fallback="forbid")) as compiled:
        (found,) = compiled.run([x]).values()
    limit = 1 if dtype == "int8" else 0.01 * np.abs(expected).max()  # rows of dynamic range are quantized
    assert np.abs(found - expected).max() <= limit


def image_model(weights: Weights) -> bytes:
    """A pointwise convolution of an image of one pixel, and of one of several."""
    builder = Builder()
    out, _, _, depth = weights.integers.shape
    w, outputs = constant(builder, weights), []
    for side in (1, 3):
        x = builder.add("NEG", [builder.input((1, side, side, depth))])
        options = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "shape": (1, side, side, out)}
        outputs.append(builder.add("CONV_2D", [x, w, builder.constant(np.zeros(out, np.float32))], **options))
    return finished(builder, outputs, {w: weights})


def test_pointwise_convolutions_of_four_bits(device_name: str) -> None:
    random = np.random.default_rng(3)
    weights = draw(random, (21, 1, 1, 45), 4)
    images = [random.standard_normal((1, side, side, 45)).astype(np.float32) for side in (1, 3)]
    numerics = tflgpu.Numerics(quantized="float")  # no rows are quantized
    options = tflgpu.Options(device=device_name, precision="fp32", cache="off", fallback="forbid", numerics=numerics)
    with tflgpu.compile(image_model(weights), options) as compiled:
        found = compiled.run(images).values()
    for image, result in zip(images, found, strict=True):
        expected = -image.astype(np.float64) @ weights.values[:, 0, 0].T
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def lookup_model(weights: Weights, code: str) -> bytes:
    builder = Builder()
    table, ids = constant(builder, weights), builder.input((4,), "int32")
    inputs = [ids, table] if code == "EMBEDDING_LOOKUP" else [table, ids]
    return finished(builder, [builder.add(code, inputs, (4, weights.integers.shape[1]))], {table: weights})


@pytest.mark.parametrize("code", ["EMBEDDING_LOOKUP", "GATHER"])
@pytest.mark.parametrize(("bits", "block", "width"), [(8, 0, 90), (4, 0, 97), (4, 32, 96)])
@pytest.mark.parametrize("kernels", ["auto", "gpu"])
def test_rows_of_tables(code: str, bits: int, block: int, width: int, kernels: KernelFamily, device_name: str) -> None:
    weights, ids = draw(np.random.default_rng(5), (50, width), bits, block), np.array([49, 0, 7, 7], np.int32)
    execution = tflgpu.Execution(kernels=kernels)
    options = tflgpu.Options(device=device_name, precision="fp32", cache="off", fallback="forbid", execution=execution)
    with tflgpu.compile(lookup_model(weights, code), options) as compiled:
        (found,) = compiled.run([ids]).values()
        assert "convert_float4(" in compiled.source
    np.testing.assert_array_equal(found, weights.values[ids].astype(np.float32))


def head_model(weights: Weights) -> bytes:
    """Rows of a table, and a fully connected layer whose weights are the same."""
    builder = Builder()
    table, ids = constant(builder, weights), builder.input((1,), "int32")
    rows, width = weights.integers.shape
    found = builder.add("EMBEDDING_LOOKUP", [ids, table], (1, width))
    bias = builder.constant(np.zeros(rows, np.float32))
    head = builder.add("FULLY_CONNECTED", [builder.add("NEG", [found]), table, bias], (1, rows))
    return finished(builder, [head], {table: weights})


@pytest.mark.parametrize("target", [H200, CPU])
@pytest.mark.parametrize("bits", [8, 4])
def test_a_table_that_is_the_last_layer_is_there_once(
    bits: int, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_from_memory(monkeypatch)
    weights = draw(np.random.default_rng(5), (200, 96), bits)
    plan = plan_of(head_model(weights), target)
    executable = link(plan, ["f"] * len(plan.kernels))
    stored = sum(buffer.bytes for buffer in executable.buffers if buffer.data is not None)
    table = weights.integers.size * bits // 8
    assert table <= stored < 1.6 * table
