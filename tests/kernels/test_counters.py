"""How often kernels of GPUs without matrix units load and multiply: what blocks of registers are for, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.ops import reference
from tests.ops.case import Net
from tests.quick import RUNTIMES
from tests.support.counters import Counts, counted
from tests.support.planning import plan_of
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session
from tflgpu.target import Limits, Target

# Elements that a kernel of MobileNetV1 0.25 loads and multiplies for an element of its output, whose shape comes first.
MOBILENET_V1 = (
    ("112x112x8", "gpu/convolution", 11.1, 27.0),
    ("112x112x8", "gpu/depthwise_columns", 7.0, 9.0),
    ("112x112x16", "gpu/convolution", 3.5, 8.0),
    ("56x56x16", "gpu/depthwise_columns", 9.25, 9.0),
    ("56x56x32", "gpu/convolution", 6.0, 16.0),
    ("56x56x32", "gpu/depthwise_columns", 7.0, 9.0),
    ("56x56x32", "gpu/convolution", 11.0, 32.0),
    ("28x28x32", "gpu/depthwise_columns", 9.25, 9.0),
    ("28x28x64", "gpu/convolution", 11.0, 32.0),
    ("28x28x64", "gpu/depthwise_columns", 7.0, 9.0),
    ("28x28x64", "gpu/convolution", 21.0, 64.0),
    ("14x14x64", "gpu/depthwise_columns", 10.57, 10.29),
    ("14x14x128", "gpu/convolution", 24.0, 73.14),
    *(
        ("14x14x128", "gpu/depthwise_columns", 8.0, 10.29),
        ("14x14x128", "gpu/convolution", 46.86, 146.29),
    )
    * 5,
    ("7x7x128", "gpu/depthwise_columns", 14.29, 10.29),
    ("7x7x256", "gpu/convolution", 46.2, 146.29),
    ("7x7x256", "gpu/depthwise_columns", 8.0, 10.29),
    ("7x7x256", "gpu/convolution", 91.27, 292.57),
    ("4x1x1x1001", "gpu/layer_of_mean", 94.86, 65.28),  # of a quarter of the channels
    ("1001", "portable/softmax", 12.0, 0.0),  # four shares, three times
)


def count(model: bytes, inputs: Sequence[NDArray[np.float32]], registers: int = 256) -> list[tuple[str, Counts]]:
    """The shape of each kernel's output, and its counts, on a GPU of 8 compute units."""
    target = Target(family="gpu", compute_units=8, storage="float", limits=Limits(registers=registers))
    plan = plan_of(model, target)
    shapes = ["x".join(map(str, k.destination.storage.geometry.shape)) for k in plan.kernels]
    return list(zip(shapes, counted(plan, inputs, open_session(choose(RUNTIMES[0]))), strict=True))


def test_kernels_of_mobilenet_load_and_multiply_no_more(shared: Path) -> None:
    """Less is welcome: then the table is to have the new numbers."""
    data = (shared / "models" / "mobilenet_v1_0.25_224_1_default_1.tflite").read_bytes()
    found = count(data, [np.zeros((1, 224, 224, 3), np.float32)])
    rows = [(shape.removeprefix("1x"), c.template, c.loads, c.products) for shape, c in found]
    assert [row[:2] for row in rows] == [row[:2] for row in MOBILENET_V1]
    more = [np.subtract(row[2:], held[2:]).max() for row, held in zip(rows, MOBILENET_V1, strict=True)]
    assert [row for row, difference in zip(rows, more, strict=True) if difference > 0.01] == []
    assert max(c.stores for _, c in found) == 1.0


@pytest.mark.parametrize(("registers", "most"), [(256, 0.33), (64, 0.4)])
def test_products_load_as_little_as_a_convolution(registers: int, most: float) -> None:
    """A tile of 6 x 2 vec4s loads 14 of them for 48 products, 4 x 4 load 20 for 64, 4 x 2 12 for 32; and a bias."""
    net = Net(seed=1)
    x, weights = net.input(net.normal((480, 64))), net.constant(net.normal((128, 64)))
    layer = net.op("FULLY_CONNECTED", [x, weights], reference.fully_connected(x.value, weights.value, np.zeros(1)), {})
    for adj_x, adj_y in ((False, False), (False, True), (True, True)):
        left = net.input(net.normal((2, 64, 240) if adj_x else (2, 240, 64)))
        right = net.input(net.normal((2, 128, 64) if adj_y else (2, 64, 128)))
        value = np.zeros((2, 240, 128))  # what comes out is another test's affair
        net.output(net.op("BATCH_MATMUL", [left, right], value, {"adj_x": adj_x, "adj_y": adj_y}))
    net.output(layer)
    case = net.case()
    products = [c for _, c in count(case.model, case.inputs, registers) if c.products]
    assert [c.template for c in products] == ["portable/matrix_product"] * 4
    assert max(c.loads / c.products for c in products) <= most
    assert {(c.stores, c.products) for c in products} == {(1.0, 64.0)}
