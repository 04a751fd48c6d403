"""Fully connected layers on CPUs: blocks of images by vectors of outputs, of any number of each."""

from __future__ import annotations

import numpy as np
import pytest

import tflgpu
from tests.ops import reference
from tests.ops.case import Net
from tests.support.planning import plan_of
from tflgpu.kernels.cpu.fully_connected_kernels import LAYERS
from tflgpu.target import Limits, Target

# Images, depth, outputs.
CASES = {
    "whole blocks": (10, 80, 80),
    "images and outputs that are left over": (53, 31, 75),
    "several tiles of images and of outputs": (107, 150, 250),
    "images too long to become floats together": (7, LAYERS.widened_floats // 3, 38),
    "one image": (1, 257, 514),
    "few outputs": (9, 20, 6),
}


def layer(images: int, depth: int, outputs: int) -> Net:
    """A layer with operands of the result's own shape, of one image, and of one channel."""
    net = Net(seed=outputs)
    x = net.input(net.normal((images, depth)))
    x = net.op("ABS", [x], np.abs(x.value))
    weights, bias = net.constant(net.normal((outputs, depth), depth**-0.5)), net.constant(net.normal((outputs,)))
    value = reference.fully_connected(x.value, weights.value, bias.value)
    y = net.op("FULLY_CONNECTED", [x, weights, bias], value, activation="RELU", terms=depth)
    for shape in ((images, outputs), (1, outputs), (images, 1)):
        other = net.input(net.normal(shape))
        y = net.op("ADD", [y, other], y.value + other.value, activation="NONE")
    net.output(y)
    net.output(net.op("ABS", [y], np.abs(y.value)))
    return net


@pytest.mark.quick(when=lambda name, precision: "left over" in name and precision == "fp16")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", CASES)
def test_layers_are_right(name: str, precision: str, device_name: str) -> None:
    case = layer(*CASES[name]).case()
    with tflgpu.compile(case.model, tflgpu.Options(device=device_name, precision=precision, cache="off")) as compiled:
        outputs = compiled.run(case.inputs).values()
    case.check(outputs, precision)


@pytest.mark.parametrize("images", [1, 3, 100])
def test_weights_are_halves_for_all_numbers_of_images(images: int) -> None:
    target = Target(family="cpu", compute_units=2, storage="half", limits=Limits(vector_width=16))
    kernels = plan_of(layer(images, 40, 64).case().model, target).kernels
    assert [a.type for k in kernels if k.kernel.macs for a in k.kernel.arguments if a.name == "weights"] == ["half"]
