"""BATCH_MATMUL, with either side transposed and batch axes that broadcast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflgpu.graph.ir import Tensor
from tflgpu.graph.layout import Shape
from tflgpu.ops.declaration import Emitter, Site, declare


@dataclass(frozen=True)
class MatMul:
    """Inputs: left [..., m, k] and right [..., k, n]; an adjoint side has its last two axes swapped."""

    adjoint_left: bool
    adjoint_right: bool


def matrix_of(shape: Shape, adjoint: bool) -> tuple[int, int]:
    """Return the rows and columns of a tensor's matrices in the product.

    Args:
        shape: The tensor's; its last two axes are a matrix.
        adjoint: Whether the matrices are transposed.
    """
    return (shape[-1], shape[-2]) if adjoint else (shape[-2], shape[-1])


def _product_shape(site: Site) -> Shape:
    left, right = site.input(0).shape, site.input(1).shape
    rows, _ = matrix_of(left, bool(site.options.get("adj_x")))
    _, columns = matrix_of(right, bool(site.options.get("adj_y")))
    return (*np.broadcast_shapes(left[:-2], right[:-2]), rows, columns)


def _reasons(site: Site) -> Iterator[str]:
    left, right = site.input(0).shape, site.input(1).shape
    if min(len(left), len(right)) < 2:
        yield f"its inputs {list(left)} and {list(right)} are not both matrices"
        return
    _, depth = matrix_of(left, bool(site.options.get("adj_x")))
    height, _ = matrix_of(right, bool(site.options.get("adj_y")))
    if depth != height:
        yield f"its matrices have {depth} columns on the left and {height} rows on the right"
    try:
        np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        yield f"its batch axes {list(left[:-2])} and {list(right[:-2])} do not broadcast"


@declare("BATCH_MATMUL", versions=4, inputs=2, reasons=_reasons)
def batch_matmul(site: Site, emit: Emitter) -> Tensor:
    """Products of matrices, whose leading axes broadcast."""
    attributes = MatMul(bool(site.options.get("adj_x")), bool(site.options.get("adj_y")))
    left, right, shape = site.input(0), site.input(1), _product_shape(site)
    if left.size == right.size == 0:
        return emit.constant(np.zeros(shape, np.float32))  # sums of nothing
    return emit.node("matmul", [left, right], shape, attributes)
