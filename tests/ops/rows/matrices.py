"""Rows of the matrix products."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tests.ops.case import Net, Row, Tensor
from tests.ops.strategies import BOOL

SIDE = st.integers(1, 19)


def batch_matmul(net: Net) -> Tensor:
    """Either side transposed, the right one a constant or not, batch axes of any rank that broadcast."""
    rows, depth, columns = net.draw(SIDE), net.draw(SIDE), net.draw(SIDE)
    batch = net.draw(st.lists(st.integers(1, 3), max_size=3))
    left = net.normal((*batch, rows, depth))
    right = net.normal((*_broadcast(net, batch), depth, columns))
    value = np.matmul(left.astype(np.float64), right.astype(np.float64))
    adj_x, adj_y = net.draw(BOOL), net.draw(BOOL)
    x = net.input(np.ascontiguousarray(np.swapaxes(left, -1, -2)) if adj_x else left)
    stored = np.ascontiguousarray(np.swapaxes(right, -1, -2)) if adj_y else right
    y = net.constant(stored) if net.draw(BOOL) else net.input(stored)
    return net.op("BATCH_MATMUL", [x, y], value, {"adj_x": adj_x, "adj_y": adj_y}, terms=depth)


def _broadcast(net: Net, batch: list[int]) -> list[int]:
    """Batch axes of the same rank that broadcast to ``batch``."""
    return [net.draw(st.sampled_from((1, size))) for size in batch]


ROWS = (Row("batch_matmul", "BATCH_MATMUL", batch_matmul),)
