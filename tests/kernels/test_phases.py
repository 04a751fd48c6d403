"""Transposed convolutions, which are computed phase by phase."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.kernels.networks import transpose_convolution
from tests.ops.case import Case, Net
from tests.ops.windows import Window
from tests.support import emulated_matrix_units as emulated
from tests.support.corrections import ALWAYS, correct
from tests.support.planning import plan_of, taking


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution of an image of ``shape`` to ``size`` pixels, and the tile that a warp computes of it."""

    shape: tuple[int, int, int, int]
    channels: int
    window: Window
    size: tuple[int, int]
    tile: tuple[int, int, int]

    def network(self) -> Case:
        """A residual joins it. The first pixel is NaN, and so is the last one."""
        net = Net(seed=3)
        image = net.normal(self.shape)
        image[0, 0, 0] = image[-1, -1, -1] = np.nan
        x = net.input(image)
        x = net.op("ABS", [x], abs(x.value))  # which is stored in half
        x = transpose_convolution(net, x, self.channels, self.window, self.size)
        y = net.input(net.normal(x.shape))
        net.output(net.op("ADD", [x, y], x.value + y.value, activation="NONE"))
        return net.case()


CASES = (
    Transposed((1, 5, 4, 20), 24, Window((3, 3), (2, 2), padding="SAME"), (9, 8), tile=(1, 1, 1)),
    Transposed((2, 4, 3, 40), 50, Window((4, 5), (2, 3)), (10, 12), tile=(2, 2, 2)),
    Transposed((2, 5, 7, 16), 3, Window((2, 2), (2, 2), padding="SAME"), (10, 14), tile=(1, 4, 1)),
    Transposed((1, 6, 5, 33), 17, Window((2, 3), (4, 1)), (23, 7), tile=(1, 1, 4)),
    Transposed((2, 5, 6, 3), 20, Window((7, 4), (3, 2), padding="SAME"), (14, 11), tile=(2, 1, 2)),
)


def check_numbers(got: NDArray[np.float32], expected: NDArray[np.float64], error: float) -> None:
    """error: of the largest number."""
    assert 0 < np.count_nonzero(np.isnan(expected)) < expected.size / 2
    np.testing.assert_allclose(got, expected, rtol=0, atol=error * np.nanmax(np.abs(expected)))


@pytest.mark.quick(when=lambda case: case in CASES[::2])
@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_pixel_reaches_its_windows_only(case: Transposed, kernels: str) -> None:
    network = case.network()
    model = tflgpu.compile(
        network.model, tflgpu.Options(execution=tflgpu.Execution(kernels=kernels), precision="fp32", cache="off")
    )
    (got,) = model.run(network.inputs).values()
    check_numbers(got, network.expected[0], 1e-6)


@pytest.mark.quick(when=lambda case, storage: case in CASES[:2] and storage == "half")
@pytest.mark.parametrize("storage", ["half", "float"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_emulated_matrix_units_compute_all_phases(
    case: Transposed, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct(monkeypatch, {"mma/gemm of floats": ALWAYS})
    network = case.network()
    target = replace(emulated.TARGET, storage=storage)
    plan = plan_of(network.model, target, choose=taking(transpose_convolution=case.tile))
    (kernel,) = (k.kernel for k in plan.kernels if k.node.kind == "transpose_convolution")
    assert kernel.template.startswith("mma/gemm/")
    (got,) = emulated.run(plan, network.inputs)
    check_numbers(got, network.expected[0], {"half": 2e-3, "float": 1e-6}[storage])
