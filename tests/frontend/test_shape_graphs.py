"""Small graphs that compute a shape, and files whose declared shapes are not to be believed, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.support import litert
from tests.support.models import Builder

pytest.importorskip("ai_edge_litert.interpreter")

Array = NDArray[np.float32]


def integers(b: Builder, values: object) -> int:
    return b.ints(values)


def shape_of(b: Builder, tensor: int, rank: int) -> int:
    return b.add("SHAPE", [tensor], (rank,), "int32", out_type="int32")


def gathered(b: Builder, x: int, places: object) -> int:
    indices = np.array(places, np.int32)
    return b.add("GATHER", [x, b.constant(indices)], indices.shape, "int32", axis=0)


def flattened_layer(declared: tuple[int, ...]) -> bytes:
    """A layer of [batch, the product of all other sizes] of its input; ``declared`` is the file's shape of that."""
    b = Builder()
    x = b.input((2, 3, 4), name="x")
    shape = shape_of(b, x, 3)
    product = b.add("REDUCE_PROD", [gathered(b, shape, [1, 2]), integers(b, [0])], (), "int32")
    wanted = b.add("PACK", [gathered(b, shape, 0), product], (2,), "int32", values_count=2)
    rows = b.add("RESHAPE", [x, wanted], declared)
    output = b.add("FULLY_CONNECTED", [rows, b.constant(np.arange(36, dtype=np.float32).reshape(3, 12))], (2, 3))
    return b.finish([output])


def declared_as_one_by_one() -> bytes:
    """Some converters leave intermediate tensors like these, whose shape they do not know."""
    b = Builder()
    x = b.input((2, 3))
    y = b.add("RELU", [x], (1, 1))
    return b.finish([b.add("NEG", [y], (2, 3))])


def greatest_size() -> bytes:
    """An integer of constants alone, next to one that is not."""
    b = Builder()
    x = b.input((2, 3, 4))
    shape = shape_of(b, x, 3)
    total = b.add("SUM", [shape, integers(b, [0])], (), "int32")
    greatest = b.add("REDUCE_MAX", [shape, integers(b, [0])], (), "int32")
    y = b.add("MUL", [total, greatest], (), "int32")
    scale = b.add("CAST", [y], (), in_data_type="int32", out_data_type="float32")
    return b.finish([b.add("MUL", [x, scale], (2, 3, 4))])


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
    b = Builder()
    given = [b.input((3,)) for _ in range(others)]
    x = b.constant(np.arange(3, dtype=np.float32))
    b._inputs.append(x)  # the writer has no reason to write such files
    y = b.add("ADD", [*given, x] if given else [x, x], (3,))
    model = b.finish([y])
    arrays = [np.full(3, 10 + i, np.float32) for i in range(others + 1)]
    (expected,), (got,) = (
        r.values() for r in (litert.run(model, *arrays), tflgpu.compile(model, options(device_name)).run(arrays))
    )
    np.testing.assert_array_equal(got, expected)


def test_shapes_that_the_model_cannot_take_are_refused() -> None:
    """LiteRT refuses them, too, with a RuntimeError about a node that the caller never heard of."""
    b = Builder()
    x = b.input((1, 8, 8, 1), name="x")
    filters, bias = b.constant(np.ones((1, 5, 5, 1), np.float32)), b.constant(np.zeros(1, np.float32))
    y = b.add("CONV_2D", [x, filters, bias], (1, 4, 4, 1), padding="VALID", stride_h=1, stride_w=1)
    model = b.finish([y])
    with pytest.raises(tflgpu.UnsupportedError, match="larger than the input"):
        tflgpu.compile(model, tflgpu.Options(cache="off", shapes=tflgpu.Shapes(inputs={"x": (1, 3, 3, 1)})))
