"""Products of matrices that tests compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.ops.case import Net, Tensor


@dataclass(frozen=True)
class Product:
    """A product of [*left_batch, rows, depth] and [*right_batch, depth, columns], and how kernels divide it.

    tile: rows and slices of a work-item, and split-K; or the rows of a group that shares the depth.
    """

    left_batch: tuple[int, ...]
    right_batch: tuple[int, ...]
    rows: int
    depth: int
    columns: int
    adjoint: tuple[bool, bool]
    tile: tuple[int, ...]

    def network(self, net: Net) -> Tensor:
        left = net.normal((*self.left_batch, self.rows, self.depth))
        right = net.normal((*self.right_batch, self.depth, self.columns))
        value = np.matmul(left.astype(np.float64), right.astype(np.float64))
        sides = [
            net.input(np.ascontiguousarray(np.swapaxes(side, -1, -2)) if adjoint else side)
            for side, adjoint in zip((left, right), self.adjoint, strict=True)
        ]
        options = dict(zip(("adj_x", "adj_y"), self.adjoint, strict=True))
        x = net.op("BATCH_MATMUL", sides, value, options, terms=self.depth)
        y = net.input(net.normal(value.shape))
        return net.op("ADD", [x, y], x.value + y.value, activation="RELU")
