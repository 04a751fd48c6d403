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

# Weights of which a copy can be told from all else.
LAYER = np.random.default_rng(2).standard_normal((256, 128)).astype(np.float32)

CONFIGURATIONS = {
    "launch": tflgpu.Options(execution=tflgpu.Execution(kernels="cpu", executor="launch")),
    "claiming": tflgpu.Options(execution=tflgpu.Execution(kernels="cpu", executor="claiming")),
    "persistent": tflgpu.Options(execution=tflgpu.Execution(kernels="gpu", executor="persistent")),
    "partly on the cpu": tflgpu.Options(cpu_part=tflgpu.CpuPart(operators=["TANH"])),
}


def decoder() -> bytes:
    """``prefill`` and ``decode``, which both write rows of ``cache`` from ``position`` on, and add one to ``count``.

    ``window`` is turned upside down, and gets the first row added. ``summary``, the first row, goes from ``prefill`` to
    ``decode``. y is tanh(x @ weights) @ transpose(cache), and of ``decode`` that much more for the other two.
    """
    main, outputs = _signature(FILLED)
    other, more = _signature(1)
    main.subgraph(other, more, signature="decode")
    return main.finish(outputs, signature="prefill")


def _signature(count_of_rows: int) -> tuple[Builder, list[int]]:
    builder, shape = Builder(), (count_of_rows, WIDTH)
    x = builder.input(shape, name="x")
    position = builder.input((2,), "int32", name="position")
    cache = builder.input((PLACES, WIDTH), name="cache")
    count = builder.input((1, 3), name="count")
    window = builder.input((FILLED, WIDTH), name="window")
    no_bias = builder.constant(np.zeros(WIDTH, np.float32))
    product = builder.add("FULLY_CONNECTED", [x, builder.constant(WEIGHTS), no_bias], shape)
    new = builder.add("TANH", [product], shape)
    written = builder.add("DYNAMIC_UPDATE_SLICE", [cache, new, position], (PLACES, WIDTH), name="cache")
    more = builder.add("ADD", [count, builder.constant(np.ones((1, 3), np.float32))], (1, 3), name="next_count")
    y = builder.add("BATCH_MATMUL", [new, written], (count_of_rows, PLACES), adj_y=True, adj_x=False, name="y")
    first = new
    if count_of_rows > 1:
        first = builder.add("SLICE", [new, builder.ints([0, 0]), builder.ints([1, WIDTH])], (1, WIDTH), name="summary")
    turned = builder.add("REVERSE_V2", [window, builder.ints([0])])
    following = builder.add("ADD", [turned, first], name="window")
    outputs = [y, written, more, following]
    if count_of_rows > 1:
        return builder, [*outputs, first]
    summary = builder.input((1, WIDTH), name="summary")
    others = builder.add("CONCATENATION", [window, summary], (FILLED + 1, WIDTH), axis=0)
    z = builder.add("BATCH_MATMUL", [new, others], (1, FILLED + 1), adj_y=True, adj_x=False, name="z")
    return builder, [*outputs, z]


def one_layer() -> bytes:
    """Two signatures of the same layer, which adds up its results."""

    def signature() -> tuple[Builder, list[int]]:
        builder, width = Builder(), LAYER.shape[0]
        x = builder.input((1, LAYER.shape[1]), name="x")
        last = builder.input((1, width), name="sum")
        no_bias = builder.constant(np.zeros(width, np.float32))
        y = builder.add("FULLY_CONNECTED", [x, builder.constant(LAYER), no_bias], (1, width), name="y")
        return builder, [y, builder.add("ADD", [y, last], name="sum")]

    main, outputs = signature()
    other, more = signature()
    main.subgraph(other, more, signature="decode")
    return main.finish(outputs, signature="prefill")


class ByHand:
    """The same results as the file's, in double precision, with states that are arrays."""

    def __init__(self) -> None:
        self.cache, self.count = np.zeros((PLACES, WIDTH)), np.zeros((1, 3))
        self.window, self.summary = np.zeros((FILLED, WIDTH)), np.zeros((1, WIDTH))

    def run(self, x: Array, position: int) -> list[Array]:
        """The outputs y and z of a signature, as far as it has them."""
        new = np.tanh(x.astype(np.float64) @ WEIGHTS.astype(np.float64).T)
        begin = min(position, PLACES - len(x))
        self.cache[begin : begin + len(x)] = new
        self.count += 1
        outputs = [new @ self.cache.T]
        if len(x) > 1:
            self.summary = new[:1]
        else:
            outputs.append(new @ np.concatenate((self.window, self.summary)).T)
        self.window = self.window[::-1] + new[:1]
        return outputs


def rows(seed: int, number: int) -> Array:
    return np.random.default_rng(seed).standard_normal((number, WIDTH)).astype(np.float32)


def at(position: int) -> Array:
    return np.array([position, 0], np.int32)
