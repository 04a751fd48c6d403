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
from tflgpu.codegen.environment import Number, environment, literal, seen
from tflgpu.codegen.functions import Body, Function, Pointer, Variant, body_of, share, variants
from tflgpu.codegen.link import link
from tflgpu.codegen.render import render
from tflgpu.codegen.whole_kernels import render_persistent
from tflgpu.ops.image import window
from tflgpu.plan import Plan
from tflgpu.target import Target

POINTERS = (Pointer("dst", "float", is_written=True), Pointer("src", "float", restrict=True))


def printed(template: str, *sizes: int | float) -> Body:
    """The body of a function whose template prints these sizes in place of ``{}``."""
    return body_of(template.format(*(Number(size) if isinstance(size, int) else literal(size) for size in sizes)))


def shared(*bodies: Body) -> tuple[str, list[str]]:
    text, calls = share({str(i): (POINTERS, body) for i, body in enumerate(bodies)})
    found = [calls[str(i)].text for i in range(len(bodies)) if str(i) in calls]
    return text, [re.sub("shared_[0-9a-f]+", "shared", call) for call in found]


def test_numbers_that_differ_become_arguments() -> None:
    template = "dst[tile] = 3 * src[0] + {} * {};"
    text, calls = shared(printed(template, 7, 12), printed(template, 8, -13))
    assert calls == ["shared(dst, src, tile, workspace, 7, 12);", "shared(dst, src, tile, workspace, 8, -13);"]
    assert (
        "int tile, __local float4 *workspace, int size0, int size1) {\ndst[tile] = 3 * src[0] + size0 * size1;\n}"
        in text
    )


def test_numbers_that_always_agree_are_one_argument() -> None:
    template = "int x = {} + {} - {};"
    _, calls = shared(printed(template, 5, 5, 9), printed(template, 6, 6, 4))
    assert calls == ["shared(dst, src, tile, workspace, 5, 9);", "shared(dst, src, tile, workspace, 6, 4);"]


def test_floats_become_arguments() -> None:
    template = "float x = {} * 2.0f;"
    text, calls = shared(printed(template, 1.5), printed(template, 1e-05))
    assert calls == ["shared(dst, src, tile, workspace, 1.5f);", "shared(dst, src, tile, workspace, 1e-05f);"]
    assert "float size0) {\nfloat x = size0 * 2.0f;\n}" in text
    assert shared(printed("x = {};", 2), printed("x = {};", 2.5)) == ("", []), "an int and a float"


@pytest.mark.parametrize("size", [1 << 31, -(1 << 31), -(1 << 63)])
def test_numbers_that_no_int_holds_are_text(size: int) -> None:
    assert shared(printed("long x = {};", size), printed("long x = {};", size - 1)) == ("", [])


def test_what_a_template_computes_of_sizes_is_a_size() -> None:
    template = environment().from_string(
        "{% for i in range(2) %}x{{ i }} = {{ (n + 3) // 4 * i }} % {{ [n, 2] | max }};{% endfor %}"
        "{{ 'y = %s, z = %d;' % (n - 1, n - 1) }} int held[{{ n | constant }}];"
    )
    body = body_of(template.render(n=Number(8)))
    assert body.numbers == ("0", "8", "2", "8", "7")
    assert body.text == "x0 = 0 % 8;x1 = 2 % 8;y = 7, z = 7; int held[8];"


def test_sizes_of_parameters_are_sizes_at_any_depth() -> None:
    slides = window.Window(kernel=(3, 3), stride=(2, 2), dilation=(1, 1), padding=window.Padding(1, 0, 1, 0))
    template = environment().from_string("{{ w.kernel[0] }} {{ w.stride[0] }} {{ w.padding.top }} {{ w.is_pointwise }}")
    body = body_of(template.render(w=seen(slides)))
    assert (body.text, body.numbers) == ("3 2 1 False", ("2", "1"))


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


def variants_of(*bodies: Body, takes_numbers: bool = True) -> list[Variant]:
    one = Function("", POINTERS, body_of(""), 0, 32, False, "uint", takes_numbers)
    found = variants([replace(one, name=str(i), body=body) for i, body in enumerate(bodies)])
    return [found[str(i)] for i in range(len(bodies))]


def test_variants_of_a_function_differ_in_numbers() -> None:
    template = "x = {} * {} + {};"
    first, second, other = variants_of(
        printed(template, 3, 7, 1.5), printed(template, 3, 8, 2.5), printed("x = {} / {};", 3, 7)
    )
    assert first.function is second.function and first.function.body.text == "x = 3 * size0 + size1;"
    assert (first.numbers, second.numbers) == (("7", "1.5f"), ("8", "2.5f"))
    assert first.declared == second.declared == ("int size0", "float size1")
    assert other.function.body.text == "x = 3 / 7;" and not other.declared


@pytest.mark.parametrize("takes_numbers", [False, True])
def test_functions_that_may_divide_for_each_element_have_their_own_numbers(takes_numbers: bool) -> None:
    for template in ("x = tile / {};", "x = tile + {};"):
        found = variants_of(printed(template, 5), printed(template, 6), takes_numbers=takes_numbers)
        assert (len({each.function.name for each in found}) == 1) == takes_numbers


def test_variants_have_the_same_loops() -> None:
    template = environment().from_string("for (int i = 0; i < {{ n | turns }}; ++i) x += {{ m }};")
    first, second, other = variants_of(
        *(body_of(template.render(n=Number(n), m=Number(m))) for n, m in ((5, 7), (5, 8), (6, 7)))
    )
    assert first.function is second.function and first.function is not other.function


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
