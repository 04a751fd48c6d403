"""Rows of operators of an order: STABLEHLO_SORT, which LiteRT's CPU does not have, and BUCKETIZE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.ops.case import Net, Row, Tensor
from tests.ops.strategies import BOOL, CHANNELS, SMALL, shapes
from tests.ops.tolerance import EXACT
from tflgpu.model.writer import ModelBuilder

TYPES = st.sampled_from(("float32", "int32", "int64", "int8", "uint8", "bool"))


def _comparator(net: Net, types: Sequence[str], keys: Sequence[tuple[int, bool]]) -> int:
    """The comparator of keys, each an operand and whether it ascends; in one of the spellings of converters."""
    body = ModelBuilder()
    inputs = [(body.input((), dtype), body.input((), dtype)) for dtype in types]

    def result(code: str, *operands: int, **options: object) -> int:
        body.op(code, operands, [truth := body.tensor((), "bool")], options)
        return truth

    def compared(operand: int, ascends: bool) -> int:
        if net.draw(BOOL):
            direction = f"STABLEHLO_COMPARISON_DIRECTION_{'LT' if ascends else 'GT'}"
            return result("STABLEHLO_COMPARE", *inputs[operand], comparison_direction=direction)
        turned = net.draw(BOOL)
        return result("LESS" if ascends != turned else "GREATER", *inputs[operand][:: -1 if turned else 1])

    truth = compared(*keys[-1])
    for operand, ascends in reversed(keys[:-1]):
        first, equal = compared(operand, ascends), result("EQUAL", *inputs[operand])
        if net.draw(BOOL):
            truth = result("SELECT_V2", equal, truth, first)
        else:
            truth = result("LOGICAL_OR", first, result("LOGICAL_AND", equal, truth))
    return net.subgraph(body, [truth])


def sort(net: Net) -> Tensor:
    """Operands of several types by one or two of them, many elements of which are equal, along any axis."""
    shape = [*net.draw(st.lists(SMALL, max_size=2)), net.draw(CHANNELS)]
    axis = net.draw(st.integers(0, len(shape) - 1))
    types = net.draw(st.lists(TYPES, min_size=1, max_size=3))
    operands = [net.input(net.rng.integers(0, 2 if dtype == "bool" else 9, shape).astype(dtype)) for dtype in types]
    chosen = [int(i) for i in net.rng.permutation(len(types))[: net.draw(st.integers(1, 2))]]
    keys = [(i, net.draw(BOOL)) for i in chosen]
    options = {"dimension": axis, "is_stable": True, "comparator_subgraph_index": _comparator(net, types, keys)}

    def rank(i: int, ascends: bool) -> NDArray[Any]:
        x = np.moveaxis(operands[i].value.astype(np.float64), axis, -1)
        return x if ascends else -x

    order = np.lexsort([rank(*key) for key in reversed(keys)], axis=-1)
    values = [np.take_along_axis(x.value, np.moveaxis(order, -1, axis), axis) for x in operands]
    *others, last = net.ops("STABLEHLO_SORT", operands, values, options)
    for other in others:
        net.output(other)
    return last


def bucketize(net: Net) -> Tensor:
    """The buckets of numbers: some lie between boundaries, some equal one."""
    boundaries = np.sort(net.rng.integers(-20, 20, net.draw(st.sampled_from((3, 1, 10, 70))))).astype(np.float32) / 2
    dtype = net.draw(st.sampled_from(("float32", "int32", "int64")))
    scale = 0.25 if dtype == "float32" else 1
    x = net.input((scale * net.rng.integers(-50, 50, net.draw(shapes()))).astype(dtype))
    value = np.searchsorted(boundaries, x.value, side="right").astype(np.int32)
    return net.op("BUCKETIZE", [x], value, {"boundaries": boundaries})


ROWS = (
    Row("bucketize", "BUCKETIZE", bucketize, EXACT),
    Row("stablehlo_sort", "STABLEHLO_SORT", sort, EXACT, litert=False),
)
