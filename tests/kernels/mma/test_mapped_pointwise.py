"""Growing concatenations, whose normalizations are computed within the products that read them, emulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from tests.kernels.networks import convolution
from tests.ops.case import Net, Tensor
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tests.support.planning import kinds, plan_of

POINT, SQUARE = Window((1, 1)), Window((3, 3), padding="SAME")


def normalized(net: Net, x: Tensor, activation: str) -> Tensor:
    """A batch normalization in four operators, which no convolution before it can take in."""
    channels = x.value.shape[-1]
    constants = [net.constant(net.normal((channels,))) for _ in range(4)]
    functions = ("SUB", np.subtract), ("MUL", np.multiply), ("MUL", np.multiply), ("ADD", np.add)
    for (code, function), constant in zip(functions, constants, strict=True):
        last = code == "ADD"
        value = function(x.value, constant.value)
        value = np.maximum(value, 0) if last and activation == "RELU" else value
        x = net.op(code, [x, constant], value, activation=activation if last else "NONE")
    return net.op("LOGISTIC", [x], 1 / (1 + np.exp(-x.value))) if activation == "NONE" else x


# Image, channels that a layer adds, and what follows normalizations.
CASES = (
    ((1, 5, 7, 24), 8, "RELU"),
    ((1, 9, 6, 20), 12, "NONE"),
)


@pytest.mark.quick(when=lambda executor: executor == "launch")
@pytest.mark.parametrize(
    ("case", "executor", "storage"),
    [(CASES[0], "launch", "half"), (CASES[1], "persistent", "half"), (CASES[1], "launch", "float")],
    ids=str,
)
def test_a_result_is_that_of_numpy(
    case: tuple[tuple[int, int, int, int], int, str],
    executor: Literal["launch", "persistent"],
    storage: Literal["half", "float"],
) -> None:
    shape, growth, activation = case
    layers = 3 if executor == "launch" else 2  # one program of all of them takes the compiler long
    net = Net(seed=growth)
    x = net.input(net.normal(shape))
    known = [convolution(net, x, shape[-1], SQUARE, "NONE")]
    for _ in range(layers):
        joined = np.concatenate([k.value for k in known], -1)
        whole = net.op("CONCATENATION", known, joined, {"axis": 3}, activation="NONE") if len(known) > 1 else known[0]
        y = convolution(net, normalized(net, whole, activation), 20, POINT, "RELU6")
        known.append(convolution(net, y, growth, SQUARE, "NONE"))
    net.output(convolution(net, known[-1], 4, POINT, "NONE"))
    built = net.case()
    plan = plan_of(built.model, replace(emulated.TARGET, executor=executor, storage=storage))
    assert "concatenate" not in kinds(plan)
    assert not any(k.node.kind == "map" and k.node.epilogue for k in plan.kernels)
    assert kinds(plan).count("mapped_pointwise") == layers
    emulated.check(plan, built, run=emulated.run if executor == "launch" else emulated.run_persistent)
