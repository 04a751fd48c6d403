"""``precision="fp16_fast"``: products of halves, added up in half for a while and then in float."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tflgpu
from tests.ops import reference, windows
from tests.ops.case import Net, Tensor
from tests.ops.tolerance import EXACT, check
from tests.ops.windows import Window
from tests.support.planning import plan_of
from tests.support.template_cases import CASES
from tflgpu.codegen.render import render
from tflgpu.plan import PlannedKernel
from tflgpu.target import Target

FAMILIES = ("cpu", "gpu")
FAST = tflgpu.Options(precision="fp16_fast", cache="off", fallback="forbid")
# Factors of LSTMs are outputs of the time before, which local memory holds in float; the convolution reads a model's
# input; attention has its scores in registers, in float, and a layer of a mean has that in local memory; a packed image
# is in float.
IN_FLOAT = {
    "portable/lstm",
    "gpu/layer_of_mean",
    "cpu/convolution",
    "cpu/convolution_packed",
    "rows/attention",
    "cpu/attention_blocks",
    "cpu/attention_few_rows",
}

# Sixteen products of these fill a half: the next one would be an infinity.
FACTOR, WEIGHT = 62.5, 64.0


def kernels_of(family: str) -> list[tuple[PlannedKernel, str]]:
    """All kernels of the cases that use every template, each with the source of its plan."""
    target = Target(family="cpu" if family == "cpu" else "gpu", compute_units=1, storage="half", arithmetic="half")
    found = []
    for build in CASES:
        net = Net(seed=1)
        net.output(build(net))
        plan = plan_of(net.case(EXACT).model, target)
        source = render(plan)
        tiles = {function.name: function.tile() for function in source.functions}
        found += [(kernel, tiles[name]) for kernel, name in zip(plan.kernels, source.names, strict=True)]
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_with_products_multiplies_in_half(family: str) -> None:
    """Where both factors are stored so, and nowhere else."""
    multiplying = [(k, tile) for k, tile in kernels_of(family) if k.kernel.macs and k.kernel.template not in IN_FLOAT]
    assert {k.kernel.template for k, _ in multiplying if not hasattr(k.kernel.parameters, "factor_type")} == set()
    in_half = set()
    for planned, tile in multiplying:
        factors = {a.type for a in planned.kernel.arguments if not a.name.endswith("bias")}
        assert vars(planned.kernel.parameters)["factor_type"] == ("half" if factors == {"half"} else "float")
        assert ("+= convert_float" in tile) == (factors == {"half"})
        if factors == {"half"}:
            in_half.add(planned.kernel.template)
    assert in_half == {k.kernel.template for k, _ in multiplying}


def full(net: Net, *shape: int) -> Tensor:
    return net.input(np.full(shape, FACTOR, np.float32))


def weights(net: Net, *shape: int) -> Tensor:
    return net.constant(np.full(shape, WEIGHT, np.float32))


def pointwise_convolution(net: Net) -> Tensor:
    return _convolution(net, full(net, 1, 5, 7, 96), weights(net, 36, 1, 1, 96), Window((1, 1)))


def convolution_of_one_pixel(net: Net) -> Tensor:
    return _convolution(net, full(net, 1, 1, 1, 16_384), weights(net, 5, 1, 1, 16_384), Window((1, 1)))


def convolution(net: Net) -> Tensor:
    return _convolution(net, full(net, 1, 6, 5, 20), weights(net, 9, 3, 3, 20), Window((3, 3), padding="SAME"))


def grouped_convolution(net: Net) -> Tensor:
    return _convolution(net, full(net, 1, 6, 5, 60), weights(net, 9, 2, 2, 20), Window((2, 2)))


def _convolution(net: Net, x: Tensor, filters: Tensor, w: Window) -> Tensor:
    bias = net.constant(np.zeros(filters.shape[0], np.float32))
    value = windows.conv_2d(x.value, filters.value, bias.value, w)
    return net.op("CONV_2D", [x, filters, bias], value, {"padding": w.padding, "stride_h": 1, "stride_w": 1})


def depthwise(net: Net, kernel: tuple[int, int], multiplier: int = 1) -> Tensor:
    """Wide enough for the CPU's vectors of four pixels, and for columns that see no padding."""
    x = full(net, 1, max(kernel[0], 5), kernel[1] + 6, 5)
    filters, w = weights(net, 1, *kernel, 5 * multiplier), Window(kernel, padding="SAME")
    bias = net.constant(np.zeros(5 * multiplier, np.float32))
    value = windows.depthwise_conv_2d(x.value, filters.value, bias.value, w)
    options = {"padding": w.padding, "stride_h": 1, "stride_w": 1, "depth_multiplier": multiplier}
    return net.op("DEPTHWISE_CONV_2D", [x, filters, bias], value, options)


def transpose_convolution(net: Net) -> Tensor:
    x, filters, w = full(net, 1, 4, 3, 40), weights(net, 5, 3, 3, 40), Window((3, 3), (2, 2), padding="SAME")
    value = windows.transpose_conv(x.value, filters.value, np.zeros(1), w, (8, 6))
    options = {"padding": w.padding, "stride_h": 2, "stride_w": 2}
    return net.op("TRANSPOSE_CONV", [net.integers([1, 8, 6, 5]), filters, x], value, options)


def fully_connected(net: Net, batch: int) -> Tensor:
    x, matrix = full(net, batch, 16_384), weights(net, 5, 16_384)
    value = reference.fully_connected(x.value, matrix.value, np.zeros(1))
    return net.op("FULLY_CONNECTED", [x, matrix, None], value)


def product(net: Net, adjoint: bool) -> Tensor:
    left, right = full(net, 2, 50, 50), weights(net, 50, 50)
    return net.op("BATCH_MATMUL", [left, right], left.value @ right.value, {"adj_x": adjoint, "adj_y": adjoint})


@pytest.mark.quick(when=lambda family: family == "gpu")
@pytest.mark.parametrize("family", FAMILIES)
def test_sums_longer_than_a_half_can_hold(family: str, half_device: tflgpu.Device) -> None:
    """Every operator that adds up products of weights adds at most 16 of them in half; all is exact here."""
    net = Net(seed=1, computed=True)
    sums = {
        "pointwise": pointwise_convolution(net),
        "one pixel": convolution_of_one_pixel(net),
        "3x3": convolution(net),
        "grouped": grouped_convolution(net),
        "depthwise 5x5": depthwise(net, (5, 5)),
        "depthwise 1x25": depthwise(net, (1, 25)),
        "depthwise 25x1": depthwise(net, (25, 1)),
        "depthwise 7x7": depthwise(net, (7, 7)),
        "depthwise 1x29": depthwise(net, (1, 29)),
        "depthwise, two outputs a channel": depthwise(net, (5, 5), 2),
        "transposed": transpose_convolution(net),
        "fully connected": fully_connected(net, 1),
        "fully connected, batch": fully_connected(net, 6),
        "matrices": product(net, adjoint=False),
        "adjoint matrices": product(net, adjoint=True),
    }
    for each in sums.values():
        net.output(each)
    case = net.case(EXACT)
    options = replace(FAST, device=half_device.index, execution=tflgpu.Execution(kernels=family))
    outputs = tflgpu.compile(case.model, options).run(case.inputs)
    for name, got, expected in zip(sums, outputs.values(), case.expected, strict=True):
        assert expected.max() > np.finfo(np.float16).max
        check(got, expected, EXACT, "fp32", name)


@pytest.mark.device
def test_a_device_without_the_arithmetic_is_named() -> None:
    device = tflgpu.devices()[0]
    without = replace(device, limits=replace(device.limits, half_arithmetic=False))
    message = r"'fp16_fast' multiplies in half, which needs a device with cl_khr_fp16; .+ use precision 'fp16'"
    with pytest.raises(tflgpu.DeviceError, match=message):
        without.target(FAST)
    assert without.target(replace(FAST, precision="fp16")).precision == "fp16"


def test_what_a_model_is_compiled_for(half_device: tflgpu.Device) -> None:
    net = Net(seed=1)
    net.output(net.op("NEG", [net.input(np.ones(4, np.float32))], -np.ones(4)))
    model = net.case(EXACT).model
    assert tflgpu.compile(model, replace(FAST, device=half_device.index)).precision == "fp16_fast"
