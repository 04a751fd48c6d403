"""Products of two activations on matrix units, emulated on a device that has none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.products import Product
from tests.ops.case import Net, Tensor
from tests.support import emulated_matrix_units as emulated
from tests.support.planning import plan_of, taking, templates
from tflgpu.codegen.environment import AWAIT_INPUTS
from tflgpu.codegen.render import render
from tflgpu.plan import Plan

TEMPLATE = "mma/gemm/activations"


# Their tiles are blocks of rows and columns, and split-K.
PRODUCTS = (
    Product((), (), 70, 37, 90, (False, False), (2, 2, 1)),
    Product((), (), 33, 64, 16, (False, True), (1, 1, 2)),
    Product((), (), 9, 130, 14, (True, False), (1, 1, 4)),
    Product((), (), 21, 50, 34, (True, True), (2, 1, 1)),
    Product((3,), (3,), 41, 64, 19, (False, False), (1, 2, 2)),
    Product((2, 1), (1, 3), 5, 19, 70, (False, True), (1, 4, 1)),
    Product((2, 3), (), 66, 16, 6, (True, True), (4, 2, 1)),
    Product((2, 1, 2), (1, 3, 1), 1, 11, 13, (True, False), (2, 1, 2)),
    Product((2, 3), (2, 1), 60, 250, 20, (True, False), (2, 2, 4)),
)


def planned(product: Product, left: np.ndarray, right: np.ndarray) -> tuple[Plan, list[np.ndarray]]:
    """A product of two computed sides that another tensor joins; its plan and what it takes."""
    net = Net(seed=1)

    def side(value: np.ndarray, adjoint: bool) -> Tensor:
        x = net.input(np.ascontiguousarray(np.swapaxes(value, -1, -2)) if adjoint else value)
        return net.op("ABS", [x], np.abs(x.value))

    sides = [side(value, adjoint) for value, adjoint in zip((left, right), product.adjoint, strict=True)]
    value = np.matmul(np.abs(left), np.abs(right))
    x = net.op("BATCH_MATMUL", sides, value, dict(zip(("adj_x", "adj_y"), product.adjoint, strict=True)))
    y = net.input(net.normal(value.shape))
    net.output(net.op("ADD", [x, y], x.value + y.value, activation="RELU"))
    case = net.case()
    return plan_of(case.model, emulated.TARGET, choose=taking(matmul=product.tile)), case.inputs


@pytest.mark.usefixtures("emulation")
@pytest.mark.quick(when=lambda product: product in PRODUCTS[2:6:3])
@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_a_result_is_that_of_numpy(product: Product) -> None:
    random = np.random.default_rng(product.rows)
    left = random.standard_normal((*product.left_batch, product.rows, product.depth)).astype(np.float32)
    right = random.standard_normal((*product.right_batch, product.depth, product.columns)).astype(np.float32)
    plan, inputs = planned(product, left, right)
    assert TEMPLATE in templates(plan)
    assert all(function.body.text.count(AWAIT_INPUTS) <= 1 for function in render(plan).functions), (
        "a kernel waits once"
    )
    (got,) = emulated.run(plan, inputs)
    expected = np.maximum(np.matmul(np.abs(left.astype(np.float64)), np.abs(right)) + inputs[2], 0)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3 * expected.max())
