"""Matrix products and fully connected layers of GPUs, with every way to divide their work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

import tflgpu
from tests.kernels.networks import convolution
from tests.kernels.products import Product
from tests.ops import reference
from tests.ops.case import Net, Tensor
from tests.ops.windows import Window
from tests.quick import on_first_runtime
from tests.support.limited_devices import Simulation, limited
from tests.support.planning import plan_of, taking, templates
from tests.support.running import run_chosen
from tflgpu.target import Limits, Target

PRODUCTS = (
    Product((), (), 70, 37, 90, (False, False), (4, 4, 1)),
    Product((), (), 33, 24, 16, (False, True), (2, 2, 1)),
    Product((), (), 9, 130, 14, (True, False), (4, 2, 4)),
    Product((3,), (3,), 41, 30, 19, (False, False), (2, 4, 2)),
    Product((2, 1), (1, 3), 5, 19, 70, (False, True), (1, 4, 4)),
    Product((2, 3), (), 66, 7, 6, (True, True), (4, 1, 1)),
    Product((2,), (2,), 31, 25, 21, (False, True), (6, 2, 1)),
    Product((2, 1, 2), (1, 3, 1), 1, 11, 13, (True, False), (4, 4, 2)),
    Product((3, 2), (3, 2), 130, 3, 5, (False, False), (4, 2, 1)),
    Product((2,), (), 43, 21, 22, (True, False), (6, 2, 1)),
    Product((), (2,), 9, 70, 14, (True, True), (1, 1, 4)),
    Product((), (), 13, 18, 11, (True, False), (2, 2, 1)),
    Product((2,), (2,), 1, 300, 10, (False, False), (128, 1)),
    Product((3, 1), (1, 2), 3, 130, 21, (False, False), (128, 2)),
    Product((2,), (2,), 9, 70, 14, (True, False), (128, 8)),
    Product((1,), (1,), 6, 31, 6, (True, False), (128, 4)),
    Product((2, 3), (2, 1), 3, 33, 9, (True, False), (128, 2)),
    Product((2,), (2,), 1, 303, 10, (False, True), (128, 1)),
    Product((3, 1), (1, 2), 3, 130, 21, (False, True), (128, 2)),
    Product((1,), (1,), 6, 70, 8, (True, True), (128, 4)),
    Product((2,), (2,), 9, 71, 14, (True, True), (128, 8)),
)


@dataclass(frozen=True)
class Layer:
    """A fully connected layer. tile: of a product, or how many of a group share the depth, and its rows."""

    rows: int
    depth: int
    columns: int
    tile: tuple[int, ...]

    def network(self, net: Net) -> Tensor:
        x = net.input(net.normal((self.rows, self.depth)))
        weights = net.constant(net.normal((self.columns, self.depth), 0.3))
        bias = net.constant(net.normal((self.columns,)))
        value = reference.fully_connected(x.value, weights.value, bias.value)
        return net.op("FULLY_CONNECTED", [x, weights, bias], value, activation="RELU", terms=self.depth)


LAYERS = (
    Layer(1, 300, 10, (128, 1)),
    Layer(3, 130, 21, (128, 2)),
    Layer(4, 30, 7, (128, 4)),
    Layer(11, 90, 8, (128, 8)),
    Layer(35, 31, 70, (6, 2, 1)),
    Layer(6, 200, 18, (2, 1, 4)),
)
QUICK = (*PRODUCTS[2:5], *LAYERS[3:5])


@pytest.mark.quick(when=lambda case, device_name: case in QUICK and on_first_runtime(device_name))
@pytest.mark.parametrize("case", (*PRODUCTS, *LAYERS), ids=str)
def test_products_are_right_however_they_are_divided(case: Product | Layer, device_name: str) -> None:
    net = Net(seed=1)
    net.output(case.network(net))
    model = net.case()
    precision: Literal["fp16", "fp32"] = "fp16" if case.depth % 2 else "fp32"
    options = tflgpu.Options(
        device=device_name, execution=tflgpu.Execution(kernels="gpu"), precision=precision, cache="off"
    )
    with limited(device_name, Simulation()) as device:  # whose local memory is real
        run_chosen(model, device, options, taking(matmul=case.tile, fully_connected=case.tile))


@pytest.mark.parametrize("adjoint", [(False, False), (True, True)], ids=str)
def test_an_infinity_stays_in_its_row_and_column(adjoint: tuple[bool, bool], device_name: str) -> None:
    """No element behind the last row, column or depth is multiplied."""
    left, right = np.ones((2, 5, 6), np.float32), np.ones((2, 6, 7), np.float32)
    left[0, 4, 5] = right[1, 5, 6] = np.inf
    value = (left[..., None] * right[:, None]).sum(2)
    net = Net(seed=1)
    sides = [net.input(np.swapaxes(s, 1, 2).copy() if a else s) for s, a in zip((left, right), adjoint, strict=True)]
    options = dict(zip(("adj_x", "adj_y"), adjoint, strict=True))
    net.output(net.op("BATCH_MATMUL", sides, value, options))
    model = net.case()
    compiled = tflgpu.compile(
        model.model, tflgpu.Options(device=device_name, execution=tflgpu.Execution(kernels="gpu"), cache="off")
    )
    (got,) = compiled.run(model.inputs).values()
    np.testing.assert_array_equal(got, value)


def test_a_batched_layer_is_a_product_and_a_single_row_is_not() -> None:
    """On a GPU without matrix units; the depth of one row has to occupy the device."""
    for rows, template in ((1, "portable/vector_product"), (3350, "portable/matrix_product")):
        net = Net(seed=1)
        net.output(Layer(rows, 80, 128, ()).network(net))
        target = Target(family="gpu", compute_units=16, storage="float")
        plan = plan_of(net.case().model, target)
        assert templates(plan) == [template]


def test_few_rows_of_an_adjoint_left_side_are_whole_vec4s_or_shared() -> None:
    """Other rows are read element by element: two of 103, of sums of 3007, took 101 us on an H200."""
    net = Net(seed=1)
    net.output(Product((8,), (8,), 103, 3007, 22, (True, True), (0, 0, 0)).network(net))
    target = Target(family="gpu", compute_units=132, storage="float", executor="launch")
    plan = plan_of(net.case().model, target)
    assert templates(plan)[-1] == "portable/vector_product"


@pytest.mark.parametrize(("rows", "columns"), [(8, 1000), (128, 3072)])
def test_an_adjoint_left_side_is_divided_like_any_other(rows: int, columns: int) -> None:
    """Among about as many work-groups: of multiples of four rows alone there would be 16 instead of 63."""
    tiles = []
    for adjoint in (False, True):
        net = Net(seed=1)
        net.output(Product((), (), rows, 768, columns, (adjoint, False), (0, 0, 0)).network(net))
        target = Target(family="gpu", compute_units=132, storage="float")
        plan = plan_of(net.case().model, target)
        tiles += [k.kernel.tiles for k in plan.kernels if k.kernel.template == "portable/matrix_product"]
    assert tiles[1] >= 0.7 * tiles[0]


@pytest.mark.parametrize(("registers", "most"), [(256, [12, 16]), (64, [8, 8]), (32, [4, 4])])
def test_accumulators_leave_half_of_the_registers(registers: int, most: list[int]) -> None:
    """Otherwise the compiler keeps them in memory. Runtime weights come in blocks of four slices, whatever fits."""
    target = Target(family="gpu", compute_units=4, storage="float", limits=Limits(registers=registers))
    net = Net(seed=1)
    net.output(Layer(3350, 80, 128, ()).network(net))
    net.output(convolution(net, net.input(net.normal((1, 64, 64, 32))), 64, Window((1, 1)), "NONE"))
    plan = plan_of(net.case().model, target)
    tiles = [vars(k.kernel.parameters) for k in plan.kernels if hasattr(k.kernel.parameters, "slices_out")]
    assert [p.get("rows", p.get("pixels")) * p["slices_out"] for p in tiles] == most
