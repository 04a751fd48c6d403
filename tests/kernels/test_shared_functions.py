"""Functions that differ in sizes only are compiled once, and compute what their own text would have."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

import tflgpu
from tests.kernels.networks import convolution, depthwise
from tests.ops.case import Net
from tests.ops.tolerance import ARITHMETIC, check
from tests.ops.windows import Window
from tests.support.planning import plan_of
from tests.support.program_parts import divide_programs
from tflgpu.codegen.functions import Function, Pointer, read_body
from tflgpu.codegen.link import link
from tflgpu.codegen.persistent_kernel import render_persistent
from tflgpu.codegen.render import render
from tflgpu.codegen.shared_functions import Variant, share, variants
from tflgpu.plan import Plan
from tflgpu.target import Target

POINTERS = (Pointer("dst", "float", is_written=True), Pointer("src", "float", restrict=True))


def shared(*bodies: str) -> tuple[str, list[str]]:
    text, calls = share({str(i): (POINTERS, read_body(body)) for i, body in enumerate(bodies)})
    found = [calls[str(i)].text for i in range(len(bodies)) if str(i) in calls]
    return text, [re.sub("shared_[0-9a-f]+", "shared", call) for call in found]


def test_numbers_that_differ_become_arguments() -> None:
    text, calls = shared("dst[tile] = 3 * src[0] + 7 * 12;", "dst[tile] = 3 * src[0] + 8 * 13;")
    assert calls == ["shared(dst, src, tile, workspace, 7, 12);", "shared(dst, src, tile, workspace, 8, 13);"]
    assert (
        "int tile, __local float4 *workspace, int size0, int size1) {\ndst[tile] = 3 * src[0] + size0 * size1;\n}"
        in text
    )


def test_numbers_that_always_agree_are_one_argument() -> None:
    _, calls = shared("int x = 5 + 5 - 9;", "int x = 6 + 6 - 4;")
    assert calls == ["shared(dst, src, tile, workspace, 5, 9);", "shared(dst, src, tile, workspace, 6, 4);"]


def test_floats_become_arguments() -> None:
    text, calls = shared("float x = 1.5f * (2.0f - 0x1.8p3f);", "float x = 1e-05f * (2.0f - 0x1.8p3f);")
    assert calls == ["shared(dst, src, tile, workspace, 1.5f);", "shared(dst, src, tile, workspace, 1e-05f);"]
    assert "float size0) {\nfloat x = size0 * (2.0f - 0x1.8p3f);\n}" in text
    assert shared("float x = 2;", "float x = 2.5f;") == ("", []), "an int and a float"


def test_what_is_no_number_or_has_to_be_a_constant_is_the_same_in_all_that_share() -> None:
    pairs = (
        ("float x = 0x1.5p1f;", "float x = 0x1.6p1f;"),
        ("double x = 1.5;", "double x = 2.5;"),
        ("uint x = 5u;", "uint x = 6u;"),
        ("long x = 5000000000;", "long x = 6000000000;"),
        ("int x = 0x10;", "int x = 0x11;"),
        ("int4 x;", "int8 x;"),
        ("int x[4];", "int x[5];"),
        ("#pragma unroll 2", "#pragma unroll 3"),
        ("__attribute__((opencl_unroll_hint(2))) for (;;);", "__attribute__((opencl_unroll_hint(3))) for (;;);"),
        ("switch (tile) { case 1: break; }", "switch (tile) { case 2: break; }"),
        ('asm("mov.b32 %0, 1;" : "=r"(x));', 'asm("mov.b32 %0, 2;" : "=r"(x));'),
    )
    assert [shared(*pair) for pair in pairs] == [("", [])] * len(pairs)


def test_functions_that_may_divide_for_each_element_know_their_divisors_and_small_numbers() -> None:
    def in_common(*bodies: str) -> bool:
        read = [read_body(body, divides_rarely=False) for body in bodies]
        return share({str(i): (POINTERS, body) for i, body in enumerate(read)}) != ("", {})

    assert in_common("x = 304 + 4 * tile % 19;", "x = 152 + 4 * tile % 19;")
    assert in_common("x *= 1.5f;", "x *= 12.5f;")
    for pair in (
        ("tile / 19", "tile / 38"),
        ("tile % 19", "tile % 38"),
        ("tile * 4", "tile * 19"),
        ("tile + 0", "tile + 76"),
    ):
        assert not in_common(*(f"x = {expression};" for expression in pair)), pair
    assert not in_common("x %= 19;", "x %= 38;")


def layers(net: Net, family: Literal["cpu", "gpu"]) -> Plan:
    """Convolutions of one kind in several sizes, with columns left over, and windows past the border."""
    x = net.input(net.normal((1, 11, 13, 8)))
    narrow = convolution(net, depthwise(net, x, Window((3, 3), padding="SAME"), "RELU6"), 40, Window((1, 1)), "RELU")
    wide = convolution(net, depthwise(net, narrow, Window((3, 3), padding="SAME"), "RELU6"), 72, Window((1, 1)), "RELU")
    for output in (wide, *(convolution(net, source, 20, Window((3, 3)), "NONE") for source in (x, narrow))):
        net.output(output)
    target = Target(family=family, compute_units=2, storage="float")
    return plan_of(net.case().model, target)


def test_layers_of_several_sizes_share_functions(device_name: str) -> None:
    net = Net(seed=1)
    assert "void shared_" in render(layers(net, "cpu")).text
    case = net.case()
    outputs = tflgpu.compile(case.model, tflgpu.Options(device=device_name, cache="off")).run(case.inputs)
    for got, expected in zip(outputs.values(), case.expected, strict=True):
        check(np.asarray(got), expected, ARITHMETIC, "fp32", case.describe)


def test_shared_functions_are_no_part_of_a_macro_before_them() -> None:
    """Which stands behind all others where products are halves."""
    net = Net(seed=1)
    x = net.input(net.normal((1, 256)))
    for outputs in (512, 1024, 512, 256):
        weights = net.constant(net.normal((outputs, x.shape[1])))
        x = net.op("FULLY_CONNECTED", [x, weights, None], x.value @ weights.value.T, activation="RELU")
    net.output(x)
    target = Target(family="cpu", compute_units=2, storage="half", arithmetic="half")
    text = render(plan_of(net.case().model, target)).text
    assert re.findall("^.*void shared_", text, re.MULTILINE) == ["static __attribute__((noinline)) void shared_"]


def test_gpus_know_every_size() -> None:
    assert "shared_" not in render(layers(Net(seed=1), "gpu")).text


def variants_of(*bodies: str, divides_rarely: bool = True) -> list[Variant]:
    one = Function("", POINTERS, read_body(""), 0, 32, False, "uint", divides_rarely)
    found = variants([replace(one, name=str(i), body=read_body(body)) for i, body in enumerate(bodies)])
    return [found[str(i)] for i in range(len(bodies))]


def test_variants_of_a_function_differ_in_numbers() -> None:
    first, second, other = variants_of("x = 3 * 7 + 1.5f;", "x = 3 * 8 + 2.5f;", "x = 3 / 7;")
    assert first.function is second.function and first.function.body.text == "x = 3 * size0 + size1;"
    assert (first.numbers, second.numbers) == (("7", "1.5f"), ("8", "2.5f"))
    assert first.declared == second.declared == ("int size0", "float size1")
    assert other.function.body.text == "x = 3 / 7;" and not other.declared


@pytest.mark.parametrize("divides_rarely", [False, True])
def test_functions_that_may_divide_for_each_element_have_their_own_numbers(divides_rarely: bool) -> None:
    for body in ("x = tile / {};", "x = tile + {};"):
        found = variants_of(body.format(5), body.format(6), divides_rarely=divides_rarely)
        assert (len({each.function.name for each in found}) == 1) == divides_rarely


def test_variants_have_the_same_loops() -> None:
    first, second = variants_of("for (int i = 0; i < 5; ++i) x += 7;", "for (int i = 0; i < 6; ++i) x += 7;")
    assert first.function is not second.function
    first, second = variants_of("for (int i = 0; i < 5; ++i)\nx += 7;", "for (int i = 0; i < 5; ++i)\nx += 8;")
    assert first.function is second.function


def alike(net: Net) -> None:
    """Layers of two sizes, each of which multiplies negative results by a number of its own."""
    for height in (6, 10):
        x = net.input(net.normal((1, height, 6, 8)))
        for alpha in (0.25, 0.5, 0.75):
            y = convolution(net, x, 8, Window((1, 1)), "NONE")
            x = net.op("LEAKY_RELU", [y], np.where(y.value < 0, alpha * y.value, y.value), {"alpha": alpha})
        net.output(x)


@pytest.mark.parametrize("most", [(40, 25), (1, 1)], ids=["one kernel", "kernels"])
def test_launches_of_a_persistent_kernel_have_their_own_numbers(
    device_name: str, most: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    divide_programs(monkeypatch, *most)
    net = Net(seed=1)
    alike(net)
    case = net.case()
    execution = tflgpu.Execution(kernels="gpu", executor="persistent")
    model = tflgpu.compile(case.model, tflgpu.Options(device=device_name, cache="off", execution=execution))
    assert "as_float(numbers_" in model.source
    functions = re.findall(r"void gpu_convolution_\w+_tile\(", model.source)
    assert len(functions) == 2, "of six layers, those whose results the host reads are another function"
    for got, expected in zip(model.run(case.inputs).values(), case.expected, strict=True):
        check(np.asarray(got), expected, ARITHMETIC, "fp32", case.describe)


def test_without_room_for_numbers_each_function_has_its_own() -> None:
    net = Net(seed=1)
    alike(net)
    target = Target(family="gpu", compute_units=2, storage="float", executor="persistent")
    plan = plan_of(net.case().model, target)
    source = render(plan)
    executable = link(plan, source.names)
    assert "numbers_0" in render_persistent(source, executable, ptx=False)[0]
    assert "numbers_0" not in render_persistent(source, executable, ptx=False, most_numbers=0)[0]
