"""One matrix product three ways: as a 1x1 convolution, as a fully connected layer, and of two activations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tflgpu.model.writer import ModelBuilder

# Rows, depth and columns: of the issue, of a transformer's layers, and of a small batch.
SIZES = ((3350, 80, 128), (128, 768, 3072), (197, 384, 384), (8, 1024, 1000))


def forms(rows: int, depth: int, columns: int) -> Iterator[tuple[str, bytes]]:
    """The name and the model of each form; the first is the one to compare with."""
    random = np.random.default_rng(0)
    weights = random.standard_normal((columns, depth)).astype(np.float32)
    b = ModelBuilder()
    image, y = b.input((1, rows, 1, depth)), b.tensor((1, rows, 1, columns))
    options = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    constants = b.constant(weights[:, None, None]), b.constant(np.zeros(columns, np.float32))
    b.op("CONV_2D", [image, *constants], [y], options)
    yield "CONV_2D", b.finish([y])
    b = ModelBuilder()
    x, y = b.input((rows, depth)), b.tensor((rows, columns))
    b.op("FULLY_CONNECTED", [x, b.constant(weights), b.constant(np.zeros(columns, np.float32))], [y], {})
    yield "FULLY_CONNECTED", b.finish([y])
    for adj_x, adj_y in ((False, False), (False, True), (True, False)):
        b = ModelBuilder()
        left = b.input((1, depth, rows) if adj_x else (1, rows, depth))
        right = b.input((1, columns, depth) if adj_y else (1, depth, columns))
        y = b.tensor((1, rows, columns))
        b.op("BATCH_MATMUL", [left, right], [y], {"adj_x": adj_x, "adj_y": adj_y})
        yield "BATCH_MATMUL" + " adj_x" * adj_x + " adj_y" * adj_y, b.finish([y])
