"""Small files with a signature that fills a cache and one that adds a row to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import tflgpu
from tests.support.models import Builder

Array = NDArray[Any]

PLACES, WIDTH, FILLED = 12, 8, 5

STEPS = 6

# Weights that both signatures multiply by: more than a page, so that copies of them count.
WEIGHTS = np.random.default_rng(1).standard_normal((WIDTH, WIDTH)).astype(np.float32)

CONFIGURATIONS = {
    "launch": tflgpu.Options(execution=tflgpu.Execution(kernels="cpu", executor="launch")),
    "claiming": tflgpu.Options(execution=tflgpu.Execution(kernels="cpu", executor="claiming")),
    "persistent": tflgpu.Options(execution=tflgpu.Execution(kernels="gpu", executor="persistent")),
    "partly on the cpu": tflgpu.Options(cpu_part=tflgpu.CpuPart(operators=["TANH"])),
}


def decoder() -> bytes:
    """``prefill`` and ``decode``: rows of ``cache`` are written from ``position`` on, ``count`` grows by one.

    y is what the rows give with the whole cache: tanh(x @ weights) @ transpose(cache).
    """
    main = _signature(FILLED)
    other = _signature(1)
    main[0].subgraph(other[0], other[1], signature="decode")
    return main[0].finish(main[1], signature="prefill")


def _signature(rows: int) -> tuple[Builder, list[int]]:
    builder = Builder()
    x = builder.input((rows, WIDTH), name="x")
    position = builder.input((2,), "int32", name="position")
    cache = builder.input((PLACES, WIDTH), name="cache")
    count = builder.input((1, 3), name="count")
    weights = builder.constant(WEIGHTS)
    no_bias = builder.constant(np.zeros(WIDTH, np.float32))
    product = builder.add("FULLY_CONNECTED", [x, weights, no_bias], (rows, WIDTH))
    new = builder.add("TANH", [product], (rows, WIDTH))
    written = builder.add("DYNAMIC_UPDATE_SLICE", [cache, new, position], (PLACES, WIDTH), name="cache")
    more = builder.add("ADD", [count, builder.constant(np.ones((1, 3), np.float32))], (1, 3), name="next_count")
    y = builder.add("BATCH_MATMUL", [new, written], (rows, PLACES), adj_y=True, adj_x=False, name="y")
    return builder, [y, written, more]


class ByHand:
    """What the file computes, in double precision, with states that are arrays."""

    def __init__(self) -> None:
        self.cache, self.count = np.zeros((PLACES, WIDTH)), np.zeros((1, 3))

    def run(self, x: Array, position: int) -> Array:
        """The output y of a signature."""
        new = np.tanh(x.astype(np.float64) @ WEIGHTS.astype(np.float64).T)
        begin = min(position, PLACES - len(x))
        self.cache[begin : begin + len(x)] = new
        self.count += 1
        return new @ self.cache.T


def rows(seed: int, number: int) -> Array:
    return np.random.default_rng(seed).standard_normal((number, WIDTH)).astype(np.float32)


def at(position: int) -> Array:
    return np.array([position, 0], np.int32)
