"""A model of each operator with long axes, by its size, for which LiteRT's time grows no faster than the size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tflgpu.model.writer import ModelBuilder

Array = NDArray[Any]


class Sized:
    """A model that is being written, its inputs, and its outputs: all results of its operators."""

    def __init__(self) -> None:
        self.builder, self.rng = ModelBuilder(), np.random.default_rng(0)
        self.inputs: list[Array] = []
        self.outputs: list[int] = []

    def floats(self, *shape: int) -> int:
        self.inputs.append(self.rng.normal(1, 0.1, shape).astype(np.float32))
        return self.builder.input(shape)

    def places(self, *shape: int, below: int) -> int:
        self.inputs.append(self.rng.integers(0, below, shape).astype(np.int32))
        return self.builder.input(shape, "int32")

    def constant(self, *values: int) -> int:
        return self.builder.constant(np.array(values, np.int32))

    def scalar(self, value: float, dtype: str = "int32") -> int:
        return self.builder.constant(np.array(value, dtype))

    def op(
        self,
        code: str,
        inputs: Sequence[int],
        *shapes: Sequence[int],
        dtype: str = "float32",
        version: int = 1,
        **options: Any,
    ) -> None:
        """Its first result is of this element type, others are of indices."""
        results = [self.builder.tensor(shape, "int32" if i else dtype) for i, shape in enumerate(shapes)]
        self.builder.op(code, inputs, results, options or None, version=version)
        self.outputs += results

    @property
    def model(self) -> bytes:
        return self.builder.finish(self.outputs)


def _top_k(m: Sized, n: int, k: int) -> None:
    m.op("TOPK_V2", [m.floats(n), m.scalar(k)], (k,), (k,))


def _along_rows(code: str, **options: Any) -> Callable[[Sized, int], None]:
    """One long row."""
    return lambda m, n: m.op(code, [m.floats(1, n)], (1, n), **options)


def _reduced(code: str, *axes: int) -> Callable[[Sized, int], None]:
    """Over one axis of three, or all of them."""
    return lambda m, n: m.op(
        code,
        [m.floats(1, n // 8, 8), m.constant(*axes)],
        [size for axis, size in enumerate((1, n // 8, 8)) if axis not in axes],
        keep_dims=False,
    )


def _padded(m: Sized, n: int) -> None:
    margins = m.builder.constant(np.array([[0, 0], [n - 1, n - 1]], np.int32))
    m.op("MIRROR_PAD", [m.floats(1, n), margins], (1, 3 * n - 2), mode="REFLECT")


def _cumulative(m: Sized, n: int, axis: int) -> None:
    shape = (n,) if axis == 0 else (1, n // 4, 4)
    m.op("CUMSUM", [m.floats(*shape), m.scalar(axis)], shape, exclusive=False, reverse=False)


def _one_hot(m: Sized, n: int, depth: int) -> None:
    inputs = [m.places(n // depth, below=depth), m.scalar(depth), m.scalar(1, "float32"), m.scalar(0, "float32")]
    m.op("ONE_HOT", inputs, (n // depth, depth), axis=-1)


def _updated(m: Sized, n: int) -> None:
    m.op("DYNAMIC_UPDATE_SLICE", [m.floats(1, n), m.floats(1, n // 2), m.places(2, below=1)], (1, n))


def _pool(m: Sized, n: int, code: str) -> None:
    """One window over all pixels."""
    options = {"filter_height": 1, "filter_width": n // 8, "stride_h": 1, "stride_w": 1, "padding": "VALID"}
    m.op(code, [m.floats(1, 1, n // 8, 8)], (1, 1, 1, 8), fused_activation_function="NONE", **options)


def _matrices(m: Sized, n: int, *batch: int, code: str = "BATCH_MATMUL", **options: Any) -> None:
    """A product of as many multiplications."""
    side = round((64 * n) ** (1 / 3) / 4) * 4
    shape = (*batch, side, side)
    m.op(code, [m.floats(*shape), m.floats(*shape)], shape, **options)


def _neighbours(m: Sized, n: int) -> None:
    options = {"radius": 64, "bias": 1.0, "alpha": 0.5, "beta": 0.75}
    m.op("LOCAL_RESPONSE_NORMALIZATION", [m.floats(1, 1, 1, n)], (1, 1, 1, n), **options)


MODELS: dict[str, Callable[[Sized, int], None]] = {
    "TOPK_V2 of all": lambda m, n: _top_k(m, n, n),
    "TOPK_V2 of half": lambda m, n: _top_k(m, n, n // 2),
    "TOPK_V2 of few": lambda m, n: _top_k(m, n, 10),
    "TOPK_V2 of rows": lambda m, n: m.op("TOPK_V2", [m.floats(n // 200, 200), m.scalar(200)], *[(n // 200, 200)] * 2),
    "CUMSUM": lambda m, n: _cumulative(m, n, 0),
    "CUMSUM of rows": lambda m, n: _cumulative(m, n, 1),
    "GATHER": lambda m, n: m.op("GATHER", [m.floats(n), m.places(n, below=n)], (n,), axis=0),
    "GATHER_ND": lambda m, n: m.op("GATHER_ND", [m.floats(n), m.places(n, 1, below=n)], (n,)),
    "EMBEDDING_LOOKUP": lambda m, n: m.op(
        "EMBEDDING_LOOKUP", [m.places(n // 8, below=n // 8), m.floats(n // 8, 8)], (n // 8, 8)
    ),
    "ARG_MAX": lambda m, n: m.op("ARG_MAX", [m.floats(1, n), m.scalar(1)], (1,), dtype="int32", output_type="int32"),
    "ARG_MIN": lambda m, n: m.op("ARG_MIN", [m.floats(n, 1), m.scalar(0)], (1,), dtype="int32", output_type="int32"),
    "REVERSE_V2": lambda m, n: m.op("REVERSE_V2", [m.floats(n), m.constant(0)], (n,)),
    "ONE_HOT of a large depth": lambda m, n: _one_hot(m, n, n // 4),
    "ONE_HOT of many": lambda m, n: _one_hot(m, n, 4),
    "SOFTMAX": _along_rows("SOFTMAX", beta=1.0),
    "LOG_SOFTMAX": _along_rows("LOG_SOFTMAX"),
    "L2_NORMALIZATION": _along_rows("L2_NORMALIZATION", fused_activation_function="NONE"),
    "BROADCAST_TO": lambda m, n: m.op("BROADCAST_TO", [m.floats(1, 8), m.constant(n // 8, 8)], (n // 8, 8), version=2),
    "TILE": lambda m, n: m.op("TILE", [m.floats(8), m.constant(n // 8)], (n,)),
    "MIRROR_PAD": _padded,
    "DYNAMIC_UPDATE_SLICE": _updated,
    "TRANSPOSE": lambda m, n: m.op("TRANSPOSE", [m.floats(n // 8, 8), m.constant(1, 0)], (8, n // 8)),
    "SUM": _reduced("SUM", 1),
    "MEAN": _reduced("MEAN", 0, 1, 2),
    "REDUCE_MAX": _reduced("REDUCE_MAX", 0, 1, 2),
    "REDUCE_PROD": _reduced("REDUCE_PROD", 1),
    "AVERAGE_POOL_2D": lambda m, n: _pool(m, n, "AVERAGE_POOL_2D"),
    "MAX_POOL_2D": lambda m, n: _pool(m, n, "MAX_POOL_2D"),
    "LOCAL_RESPONSE_NORMALIZATION": _neighbours,
    "BATCH_MATMUL": lambda m, n: _matrices(m, n, 1, adj_x=False, adj_y=False),
    "BATCH_MATMUL of a right adjoint": lambda m, n: _matrices(m, n, 1, adj_x=False, adj_y=True),
    "BATCH_MATMUL of a left adjoint": lambda m, n: _matrices(m, n, 1, adj_x=True, adj_y=False),
    "BATCH_MATMUL of matrices": lambda m, n: _matrices(m, n, adj_x=False, adj_y=False),
    "FULLY_CONNECTED": lambda m, n: _matrices(m, n, code="FULLY_CONNECTED", fused_activation_function="NONE"),
}


def sized(size: int, *names: str) -> Sized:
    """The model of the operators of these names, in order."""
    m = Sized()
    for name in names:
        MODELS[name](m, size)
    return m
