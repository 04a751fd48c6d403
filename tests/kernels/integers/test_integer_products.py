"""Convolutions and fully connected layers of 8-bit integers on CPUs, against integers of 64 bits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyopencl as cl
import pytest

from tests.quick import on_first_runtime
from tests.support.emulated_integer_units import emulated
from tests.support.targets import CPU
from tflgpu.codegen.render import prelude, render
from tflgpu.graph.ir import Array, Graph, Node, Tensor
from tflgpu.graph.layout import Geometry, pack, unpack
from tflgpu.kernels.integers.units import UNITS, IntegerUnit
from tflgpu.kernels.kernel import Grid, Storage
from tflgpu.kernels.rewriting import Planning
from tflgpu.ops.image.convolution import Convolution, Depthwise
from tflgpu.ops.image.window import POINTWISE, Padding, Window
from tflgpu.plan.plan import Plan, PlannedKernel
from tflgpu.plan.planning import planned_kernel
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.program import compile_program
from tflgpu.target import ElementType, Target

IMAGE_SCALE = 1 / 64


@dataclass(frozen=True)
class Case:
    """A convolution, a depthwise one if it has no number of outputs, or a fully connected layer without a window."""

    shape: tuple[int, ...]
    out: int
    window: Window | None = None
    groups: int = 1
    zero: int = 128
    extreme: bool = False
    bias: str = "whole"  # or "fractions", "none"
    most: int = 128  # of a weight
    given: ElementType | None = None  # of a model input, in row-major order
    dynamic: bool = False  # an image of floats, whose rows are quantized where they are packed

    @property
    def channels(self) -> int:
        """Channels of the result."""
        return self.out or self.shape[-1]

    @property
    def template(self) -> str:
        """The template of the kernel that multiplies integers."""
        if self.window is None:
            return "integers/integer_layer"
        if not self.out:
            return "integers/integer_depthwise"
        rows = self.window.is_pointwise or self.given is not None
        return "integers/integer_convolution" if rows else "integers/integer_patches"


SAME = Window((3, 3), (1, 1), (1, 1), Padding(1, 1, 1, 1))
CASES = {
    "pointwise": Case((1, 6, 11, 64), 48, POINTWISE),
    "pointwise, channels that fill no slice": Case((2, 5, 7, 30), 21, POINTWISE, zero=3, bias="fractions"),
    "pointwise, extremes": Case((1, 3, 5, 256), 64, POINTWISE, zero=0, extreme=True),
    "3x3, padding that is no zero": Case((1, 9, 7, 32), 40, SAME, zero=77),
    "3x3, extremes, parts of the depth": Case((1, 5, 13, 134), 70, SAME, zero=255, extreme=True),
    "strides, images": Case((3, 7, 9, 30), 46, Window((3, 2), (2, 3), (1, 1), Padding(1, 1, 0, 1)), bias="none"),
    "dilation past the image": Case((1, 4, 5, 24), 32, Window((3, 3), (1, 1), (2, 4), Padding(2, 2, 4, 4)), zero=9),
    "one axis, groups, a long window": Case(
        (1, 1, 40, 64), 128, Window((1, 20), (1, 1), (1, 1), Padding(0, 0, 0, 0)), 2
    ),
    "groups, and images of several in a tile": Case((3, 4, 4, 16), 64, SAME, 4, zero=7),
    "groups narrower than a block": Case((1, 9, 7, 48), 48, SAME, 6, zero=7),
    "groups narrower than a block, that end within it and within a slice": Case((2, 5, 9, 60), 72, SAME, 6, zero=200),
    "one axis, upright": Case((1, 40, 1, 64), 32, Window((7, 1), (2, 1), (1, 1), Padding(3, 3, 0, 0)), zero=1),
    "one pixel": Case((2, 3, 3, 32), 32, Window((3, 3), (1, 1), (1, 1), Padding(0, 0, 0, 0))),
    "model input": Case(
        (2, 11, 13, 3), 20, Window((3, 3), (2, 2), (1, 1), Padding(0, 1, 0, 1)), zero=77, given="uchar"
    ),
    "model input of one channel": Case(
        (1, 9, 10, 1), 40, Window((5, 4), (2, 1), (2, 1), Padding(3, 2, 1, 2)), given="char"
    ),
    "model input, narrow": Case((1, 6, 2, 2), 12, Window((3, 5), (1, 1), (1, 1), Padding(1, 1, 2, 2)), given="char"),
    "model input, pointwise, 9 bits": Case((1, 5, 7, 3), 9, POINTWISE, zero=3, most=255, given="uchar"),
    "pointwise, weights of 9 bits": Case((1, 6, 11, 70), 48, POINTWISE, zero=3, most=255),
    "3x3, weights of 9 bits, extremes": Case((1, 5, 13, 134), 70, SAME, zero=255, extreme=True, most=255),
    "fully connected, weights of 9 bits": Case((1, 300), 77, zero=17, most=255),
    "depthwise": Case((2, 9, 11, 10), 0, SAME, zero=77),
    "depthwise, strides, extremes": Case(
        (1, 12, 13, 8), 0, Window((3, 5), (2, 2), (1, 1), Padding(0, 1, 1, 2)), zero=255, extreme=True
    ),
    "depthwise, narrow, no bias": Case((1, 8, 3, 6), 0, SAME, zero=3, bias="none"),
    "depthwise, upright": Case((1, 40, 1, 5), 0, Window((7, 1), (2, 1), (1, 1), Padding(3, 2, 0, 0)), zero=1),
    "depthwise, dilation past the image": Case((1, 4, 5, 4), 0, Window((3, 3), (1, 1), (2, 4), Padding(2, 2, 4, 4))),
    "depthwise, stride 3, many taps": Case((1, 17, 23, 3), 0, Window((7, 7), (3, 3), (1, 1), Padding(2, 3, 3, 2))),
    "depthwise, rows that no window sees": Case((1, 9, 8, 4), 0, Window((1, 1), (4, 2), (1, 1), Padding(0, 0, 0, 0))),
    "fully connected, one image": Case((1, 300), 77, zero=17),
    "fully connected, images": Case((13, 127), 35, extreme=True),
    "fully connected, model input": Case((5, 128), 35, zero=9, given="char"),
    "fully connected, dynamic, one row": Case((1, 1026), 300, zero=9, dynamic=True),
    "fully connected, dynamic, few inputs": Case((36, 12), 77, zero=9, dynamic=True),
    "fully connected, dynamic, parts of the depth": Case((48, 1300), 77, bias="none", dynamic=True),
    "pointwise, dynamic": Case((2, 5, 7, 96), 96, POINTWISE, zero=3, dynamic=True),
    "3x3, dynamic, stride 2": Case(
        (1, 9, 12, 96), 96, Window((3, 3), (1, 2), (1, 1), Padding(1, 1, 0, 1)), dynamic=True
    ),
}


def sums(case: Case, image: Array, weights: Array) -> Array:
    """The sums of (u - zero) * w, in 64 bits."""
    x = image.astype(np.int64) - case.zero
    w = weights.astype(np.int64)
    if case.window is None:
        return x @ w.T
    (kh, kw), (sy, sx), (dy, dx), p = case.window.kernel, case.window.stride, case.window.dilation, case.window.padding
    h, width = case.window.output(*case.shape[1:3])
    x = np.pad(x, ((0, 0), (p.top, p.bottom), (p.left, p.right), (0, 0)))
    groups = case.groups if case.out else case.channels
    per_group, depth = case.channels // groups, case.shape[3] // groups
    total = np.zeros((case.shape[0], h, width, case.channels), np.int64)
    for o in range(case.channels):
        first = o // per_group * depth
        for ky in range(kh):
            for kx in range(kw):
                seen = x[:, ky * dy :, kx * dx :][:, : (h - 1) * sy + 1 : sy, : (width - 1) * sx + 1 : sx]
                total[..., o] += seen[..., first : first + depth] @ w[o, ky, kx]
    return total


def planned(case: Case, unit: str, cpu: Target = CPU) -> tuple[Plan, PlannedKernel, Array, Array]:
    """The plan of the case alone, its kernel, the image as it is stored, and the result that it has to give."""
    random, out = np.random.default_rng(len(case.shape) + case.out), case.channels
    image = random.integers(0, 256, case.shape).astype(np.uint8)
    depth = case.shape[-1] // case.groups if case.out else 1
    kernel = (out, depth) if case.window is None else (out, *case.window.kernel, depth)
    weights = random.integers(-case.most, case.most, kernel)
    if case.dynamic:
        image[..., 0], image[..., -1] = 0, 255
    if case.extreme:
        image = random.choice([0, 255], case.shape).astype(np.uint8)
        weights[...] = random.choice([-case.most, case.most - 1], kernel)
        image[0], weights[: out // 2] = 255, -case.most
    scale = random.uniform(0.001, 0.02, (out, *(1,) * (len(kernel) - 1)))
    total = sums(case, image, weights)
    factors = scale.reshape(-1) * IMAGE_SCALE
    bias = random.integers(-5000, 5000, out) + (0.37 if case.bias == "fractions" else 0)
    expected = total * factors + (0 if case.bias == "none" else bias * factors)
    values = (weights * scale).astype(np.float32)
    if not case.out:
        values, scale = np.swapaxes(values, 0, 3), np.swapaxes(scale, 0, 3)
    tensors = [
        Tensor(0, "", case.shape),
        Tensor(1, "", values.shape, data=values, scale=scale, dynamic=case.dynamic),
        Tensor(2, "", (out,), data=(bias * factors).astype(np.float32)),
        Tensor(3, "", expected.shape),
    ]
    inputs = (0, 1) if case.bias == "none" else (0, 1, 2)
    if case.window is None:
        node = Node("fully_connected", inputs, 3)
    elif case.out:
        node = Node("convolution", inputs, 3, Convolution(case.window, case.groups))
    else:
        node = Node("depthwise", inputs, 3, Depthwise(case.window, 1))
    graph = Graph({t.id: t for t in tensors}, (node,), (0,), (3,))
    storage = {
        0: Storage(Geometry(case.shape), "float")
        if case.dynamic
        else Storage(Geometry(case.shape), case.given or "uchar", bool(case.given), Grid(IMAGE_SCALE, case.zero)),
        3: Storage(Geometry(expected.shape), "float"),
    }
    target = replace(cpu, integer_unit=unit, limits=replace(cpu.limits, vector_width=UNITS[unit].lanes))
    kernel_of_node = planned_kernel(node, Planning(graph, target, storage))
    plan = Plan({}, {}, {}, 0, 0, 0, graph, target, (kernel_of_node,), storage)
    return plan, kernel_of_node, stored(case, image), expected


def padded_pack(image: Array, zero: int) -> Array:
    """In PHWC4, with the zero point in lanes past the last channel, and room for wide loads."""
    lanes = np.concatenate([image, np.full((*image.shape[:-1], -image.shape[-1] % 4), zero, np.uint8)], axis=-1)
    return np.concatenate([pack(lanes), np.zeros(64, np.uint8)])


def stored(case: Case, image: Array) -> Array:
    """The image in memory. Of int8 it is itself less 128, of floats each row has both ends of its grid."""
    if case.dynamic:
        return pack(((image.astype(np.float32) - case.zero) * IMAGE_SCALE).astype(np.float32))
    if case.given is None:
        return padded_pack(image, case.zero)
    return image ^ np.uint8(128 if case.given == "char" else 0)


@pytest.fixture(scope="module")
def results(device_name: str) -> Callable[[str], dict[str, tuple[PlannedKernel, Array, Array]]]:
    """For each case of a unit: its kernel, the kernel's results, and the expected ones. One program has all kernels."""

    @cache
    def run(unit: str) -> dict[str, tuple[PlannedKernel, Array, Array]]:
        parts = {name: planned(case, unit) for name, case in CASES.items()}
        source = render(replace(parts["pointwise"][0], kernels=tuple(kernel for _, kernel, _, _ in parts.values())))
        context = cl.Context([choose(device_name).handle])
        program = compile_program(context, emulated(source.text, unit))
        names = zip(parts, source.names, strict=True)
        kernels = {name: cl.Kernel(program, function) for name, function in names}
        return {
            name: (kernel, launched(context, kernels[name], plan, kernel, image), expected)
            for name, (plan, kernel, image, expected) in parts.items()
        }

    return run


def launched(context: cl.Context, function: cl.Kernel, plan: Plan, kernel: PlannedKernel, image: Array) -> Array:
    queue, shape = cl.CommandQueue(context), plan.storage[3].geometry.shape
    result = np.full(Geometry(shape).elements + 64, np.nan, np.float32)
    given = {"src": image, "dst": result}
    buffers, arguments = {}, []
    for argument in kernel.arguments:
        data = given[argument.name] if argument.data is None else argument.data
        buffers[argument.name] = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.ascontiguousarray(data))
        arguments += [buffers[argument.name], np.uint64(0)]
    function(queue, (kernel.kernel.tiles,), (1,), *arguments)
    cl.enqueue_copy(queue, result, buffers["dst"])
    return unpack(result[: Geometry(shape).elements], shape)


@pytest.mark.quick(when=on_first_runtime)
@pytest.mark.parametrize(
    ("unit", "name"),
    [(unit, name) for unit in UNITS for name, case in CASES.items() if case.most <= 128 or UNITS[unit].wider],
)
def test_sums_of_integers_are_exact(
    name: str, unit: str, results: Callable[[str], dict[str, tuple[PlannedKernel, Array, Array]]]
) -> None:
    (kernel, result, expected), case = results(unit)[name], CASES[name]
    assert kernel.kernel.template == case.template or (unit == "avx2" and case.dynamic)  # floats are as fast
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("unit", UNITS)
def test_each_block_multiplies_every_row_by_every_register(unit: str) -> None:
    """The text, for processors that this machine is not."""
    functions = prelude(replace(CPU, integer_unit=unit)).split("MULTIPLY multiply_")[1:]
    narrow = [f for f in functions if not f.startswith("wide_")]
    check_functions(UNITS[unit], narrow)
    wide = [f.removeprefix("wide_") for f in functions if f.startswith("wide_")]
    if wider := UNITS[unit].wider:
        check_functions(wider, wide)
    assert bool(wider) == bool(wide)


def check_functions(of: IntegerUnit, functions: list[str]) -> None:
    parts = [f"{rows}x{n}_of_{packed}" if packed > n else f"{rows}x{n}" for rows, n, packed in of.products]
    assert [f.split("(")[0] for f in functions] == parts
    mnemonic = (
        of.multiply[0].format(weights=0, row=0, sum=0, product=0).split(" %%" if "%%" in of.multiply[0] else " v")[0]
    )
    for (rows, registers, _), function in zip(of.products, functions, strict=True):
        lines = [line.strip().strip('"') for line in function.splitlines()]
        products = [line for line in lines if line.startswith(mnemonic + " ")]
        assert len(products) == rows * registers * 4 // of.inputs
        used = {int(n) for n in re.findall(r"(?:[xyz]mm|\bv|\bq)(\d+)", " ".join(lines[: lines.index("}")]))}
        assert max(used) < of.assembly.registers


@pytest.mark.parametrize("unit", UNITS)
def test_weights_take_a_quarter(unit: str) -> None:
    case = CASES["3x3, padding that is no zero"]
    _, kernel, _, _ = planned(case, unit)
    (weights,) = (a for a in kernel.arguments if a.name == "weights")
    assert weights.bytes <= 9 * case.shape[3] * -(-case.out // 64) * 64


@pytest.mark.parametrize("unit", UNITS)
def test_little_local_memory_leaves_products_to_floats(unit: str) -> None:
    case = CASES["3x3, padding that is no zero"]
    little = replace(CPU, limits=replace(CPU.limits, local_bytes=8 << 10))
    _, kernel, _, _ = planned(case, unit, little)
    assert not kernel.kernel.template.startswith("integers/")
