"""Small graphs that compute a shape, and files whose declared shapes are not to be believed, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.support import litert
from tflgpu.model.writer import ModelBuilder

pytest.importorskip("ai_edge_litert.interpreter")

Array = NDArray[np.float32]


def integers(b: ModelBuilder, values: object) -> int:
    return b.constant(np.array(values, np.int32))


def shape_of(b: ModelBuilder, tensor: int, rank: int) -> int:
    shape = b.tensor((rank,), "int32")
    b.op("SHAPE", [tensor], [shape], {"out_type": "int32"})
    return shape


def gathered(b: ModelBuilder, x: int, places: object) -> int:
    indices = np.array(places, np.int32)
    output = b.tensor(indices.shape, "int32")
    b.op("GATHER", [x, b.constant(indices)], [output], {"axis": 0})
    return output


def flattened_layer(declared: tuple[int, ...]) -> bytes:
    """A layer of [batch, the product of all other sizes] of its input; ``declared`` is the file's shape of that."""
    b = ModelBuilder()
    x = b.input((2, 3, 4), name="x")
    shape, product, wanted = shape_of(b, x, 3), b.tensor((), "int32"), b.tensor((2,), "int32")
    b.op("REDUCE_PROD", [gathered(b, shape, [1, 2]), integers(b, [0])], [product])
    b.op("PACK", [gathered(b, shape, 0), product], [wanted], {"values_count": 2})
    rows, output = b.tensor(declared), b.tensor((2, 3))
    b.op("RESHAPE", [x, wanted], [rows])
    b.op("FULLY_CONNECTED", [rows, b.constant(np.arange(36, dtype=np.float32).reshape(3, 12))], [output])
    return b.finish([output])


def declared_as_one_by_one() -> bytes:
    """As converters leave intermediate tensors whose shape they do not know."""
    b = ModelBuilder()
    x, y, z = b.input((2, 3)), b.tensor((1, 1)), b.tensor((2, 3))
    b.op("RELU", [x], [y])
    b.op("NEG", [y], [z])
    return b.finish([z])


def greatest_size() -> bytes:
    """An integer of constants alone, next to one that is not."""
    b = ModelBuilder()
    x, total, greatest = b.input((2, 3, 4)), b.tensor((), "int32"), b.tensor((), "int32")
    shape = shape_of(b, x, 3)
    b.op("SUM", [shape, integers(b, [0])], [total])
    b.op("REDUCE_MAX", [shape, integers(b, [0])], [greatest])
    y, z = b.tensor((), "int32"), b.tensor((2, 3, 4))
    b.op("MUL", [total, greatest], [y], {"fused_activation_function": "NONE"})
    scale = b.tensor(())
    b.op("CAST", [y], [scale], {"in_data_type": "int32", "out_data_type": "float32"})
    b.op("MUL", [x, scale], [z], {"fused_activation_function": "NONE"})
    return b.finish([z])


MODELS = {
    "flattened layer": flattened_layer((2, 12)),
    "flattened layer, declared as [1, 1]": flattened_layer((1, 1)),
    "RELU, declared as [1, 1]": declared_as_one_by_one(),
    "greatest size": greatest_size(),
}


def options(device: str, **others: object) -> tflgpu.Options:
    return tflgpu.Options(device=device, fallback="forbid", cache="off", **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_shapes_are_computed_as_litert_computes_them(model: bytes, device_name: str) -> None:
    compiled = tflgpu.compile(model, options(device_name))
    (info,) = compiled.inputs
    x = np.random.default_rng(0).standard_normal(info.shape).astype(np.float32)
    (expected,), (got,) = litert.run(model, x).values(), compiled.run([x]).values()
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


def test_computed_shapes_follow_the_input(device_name: str) -> None:
    """No constant of the file says how many elements a row has."""
    compiled = tflgpu.compile(
        flattened_layer((2, 12)), options(device_name, shapes=tflgpu.Shapes(inputs={"x": (5, 2, 6)}))
    )
    (got,) = compiled.run([np.ones((5, 2, 6), np.float32)]).values()
    np.testing.assert_allclose(got, np.tile(np.arange(36).reshape(3, 12).sum(axis=1), (5, 1)), rtol=1e-5)


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
def test_an_input_with_data_takes_the_callers(others: int, device_name: str) -> None:
    """The data that the file has for an input is a value to begin with, which nobody sees."""
    b = ModelBuilder()
    given = [b.input((3,)) for _ in range(others)]
    x, y = b.constant(np.arange(3, dtype=np.float32)), b.tensor((3,))
    b._inputs.append(x)  # the writer has no reason to write such files
    b.op("ADD", [*given, x] if given else [x, x], [y], {"fused_activation_function": "NONE"})
    model = b.finish([y])
    arrays = [np.full(3, 10 + i, np.float32) for i in range(others + 1)]
    (expected,), (got,) = (
        r.values() for r in (litert.run(model, *arrays), tflgpu.compile(model, options(device_name)).run(arrays))
    )
    np.testing.assert_array_equal(got, expected)


def test_shapes_that_the_model_cannot_take_are_refused() -> None:
    """LiteRT refuses them, too, with a RuntimeError about a node that the caller never heard of."""
    b = ModelBuilder()
    x, y = b.input((1, 8, 8, 1), name="x"), b.tensor((1, 4, 4, 1))
    filters, bias = b.constant(np.ones((1, 5, 5, 1), np.float32)), b.constant(np.zeros(1, np.float32))
    b.op("CONV_2D", [x, filters, bias], [y], {"padding": "VALID", "stride_h": 1, "stride_w": 1})
    model = b.finish([y])
    with pytest.raises(tflgpu.UnsupportedError, match="larger than the input"):
        tflgpu.compile(model, tflgpu.Options(cache="off", shapes=tflgpu.Shapes(inputs={"x": (1, 3, 3, 1)})))
