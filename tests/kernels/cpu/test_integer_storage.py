"""Kernels of CPUs that read and write integers on a grid in the place of floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.kernels.cpu.grid_networks import NETWORKS, network
from tests.support import litert
from tests.support.planning import plan_of
from tests.support.targets import CPU
from tflgpu.measure.trace import trace
from tflgpu.options import IntegerProducts
from tflgpu.passes.device.device_passes import ORDER, DevicePass
from tflgpu.passes.device.grids import store_on_grids


def answer(model: bytes, inputs: list[NDArray[Any]], device: str, products: IntegerProducts = "auto") -> NDArray[Any]:
    execution = tflgpu.Execution(integer_products=products)
    options = tflgpu.Options(device=device, precision="fp32", cache="off", execution=execution)
    with tflgpu.compile(model, options) as compiled:
        (result,) = compiled.run(inputs).values()
        return result


def in_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store all activations as floats from now on."""
    order = [each for each in ORDER if each != DevicePass("store_on_grids", store_on_grids)]
    assert len(order) == len(ORDER) - 1
    monkeypatch.setattr("tflgpu.passes.device.device_passes.ORDER", order)


SOME = ("dilated depthwise", "convolution and depthwise", "concatenation of odd channels")


@pytest.mark.quick(when=lambda name: name in SOME)
@pytest.mark.parametrize("products", ["auto", "off"])  # by the CPU's integer unit, if it has one, or of floats
@pytest.mark.parametrize("name", NETWORKS)
def test_integers_in_memory_change_no_answer(
    name: str, products: IntegerProducts, device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = list(NETWORKS).index(name)
    model, inputs = network(name, seed, "int8" if seed % 3 else "uint8")
    found = answer(model, inputs, device_name, products)
    (wanted,) = litert.run(model, *inputs).values()
    assert np.abs(found.astype(int) - wanted).mean() < 1, "LiteRT rounds some numbers to neighbours"
    in_floats(monkeypatch)
    same = answer(model, inputs, device_name, products)
    np.testing.assert_array_equal(found, same)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "sum"])  # which is one kernel
def test_activations_lie_on_their_grids(name: str) -> None:
    plan = plan_of(network(name, 1)[0], CPU)
    boundary = {plan.roots[t] for t in (*plan.graph.inputs, *plan.graph.outputs)}
    activations = {a.tensor for k in plan.kernels for a in k.arguments if a.tensor is not None}
    inner = [plan.storage[t] for t in activations if plan.roots[t] not in boundary]
    assert inner
    assert all(s.grid is not None and s.type == "uchar" for s in inner)


def test_a_trace_shows_what_integers_stand_for(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = network("concatenation of rows", 3)
    options = tflgpu.Options(device=device_name, precision="fp32", cache="off")
    found = {result.tensor: result.value for result in trace(model, inputs, options)}
    in_floats(monkeypatch)
    same = {result.tensor: result.value for result in trace(model, inputs, options)}
    both = found.keys() & same.keys()
    assert any(found[name].dtype == np.float32 for name in both)
    for name in both:
        np.testing.assert_array_equal(found[name], same[name])
