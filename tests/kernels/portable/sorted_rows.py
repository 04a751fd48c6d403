"""A small model of the greatest of short and of long rows."""

from __future__ import annotations

import numpy as np

from tests.ops import reference
from tests.ops.case import Net, Tensor
from tests.support.row_cases import computed


def greatest(net: Net) -> Tensor:
    """Few of short rows, which one kernel finds, and others that are so long that several sort them."""
    x = computed(net, (3, 5, 10))
    order = np.argsort(-x.value, axis=-1, kind="stable")[..., :3]
    values = np.take_along_axis(x.value, order, -1)
    values, indices = net.ops("TOPK_V2", [x, net.integers(3)], [values, order.astype(np.int32)])
    net.output(net.op("CAST", [indices], indices.value.astype(np.float64)))
    for size, k in ((210, 12), (70, 70), (130, 130)):
        x = net.input(net.rng.integers(-9, 9, (2, 3, size)).astype(np.float32))
        both = net.ops("TOPK_V2", [x, net.integers(k)], reference.top_k(x.value, k))
        for result in both:
            net.output(result)
    return values
