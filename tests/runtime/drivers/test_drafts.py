"""Programs that are compiled in less time where faster machine code replaces them before the first run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.support.models import Builder
from tests.support.program_parts import divide_programs
from tflgpu.runtime.opencl import build, compiler_process, program, quirks
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.quirks import NVIDIA, Driver, Quirk, compiler_options
from tflgpu.runtime.opencl.session import open_session

# Every OpenCL compiler has it.
IN_A_HURRY = "-cl-opt-disable"

X = np.random.default_rng(0).normal(size=(1, 4, 4, 8)).astype(np.float32)


def softmax() -> bytes:
    builder = Builder()
    x = builder.input((1, 4, 4, 8))
    return builder.finish([builder.add("SOFTMAX", [x], (1, 4, 4, 8), name="y", beta=1.0)])


def softmax_of_means() -> bytes:
    builder = Builder()
    x = builder.input((1, 4, 4, 8))
    mean = builder.add("MEAN", [x, builder.ints([1, 2])], (1, 1, 1, 8), keep_dims=True)
    return builder.finish([builder.add("SOFTMAX", [mean], (1, 1, 1, 8), name="y", beta=1.0)])


@pytest.fixture
def options(device_name: str, tmp_path: Path) -> tflgpu.Options:
    return tflgpu.Options(device=device_name, precision="fp32", cache_files=tflgpu.CacheFiles(path=tmp_path))


@pytest.fixture
def drafts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each program of a model that this process compiles, whether it is a draft. Every driver can make them."""
    hurried = Quirk("can hurry", lambda _: True, "", "", "", draft_options=(IN_A_HURRY,))
    monkeypatch.setattr(quirks, "QUIRKS", (*quirks.QUIRKS, hurried))
    monkeypatch.setattr(compiler_process, "start_compiler", lambda _: True)  # else a thread compiles an empty program
    monkeypatch.setattr(compiler_process, "compiled_apart", lambda *_: None)
    made = list[bool]()

    original = program.compile_program

    def compiled(*arguments: object, draft: bool = False, part: int | None = None) -> object:
        made.append(draft)
        return original(*arguments, draft=draft, part=part)

    for module in (build, program):
        monkeypatch.setattr(module, "compile_program", compiled)
    return made


def test_a_draft_is_replaced_by_what_the_cache_keeps_of_it(options: tflgpu.Options, drafts: list[bool]) -> None:
    expected = tflgpu.compile(softmax(), replace(options, cache="off")).run(X)["y"]
    assert drafts == [False], "nothing would replace a draft"
    cold = tflgpu.compile(softmax(), options)
    assert drafts == [False, True]
    np.testing.assert_allclose(cold.run(X)["y"], expected, rtol=1e-5)
    warm = tflgpu.compile(softmax(), options)
    assert len(drafts) == 2
    np.testing.assert_array_equal(warm.run(X)["y"], cold.run(X)["y"])


@pytest.mark.usefixtures("fresh_warnings")
def test_a_driver_that_refuses_what_replaces_a_draft_compiles_it_again(
    options: tflgpu.Options, drafts: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "load_program", lambda *_: None)
    with pytest.warns(tflgpu.CacheWarning, match="compiled again"):
        model = tflgpu.compile(softmax(), options)
    assert drafts == [True, False]
    assert np.isfinite(model.run(X)["y"]).all()


@pytest.fixture
def three_kernels(monkeypatch: pytest.MonkeyPatch, options: tflgpu.Options) -> tflgpu.Options:
    """Options with which the model is three kernels, whose drafts are compiled apart."""
    divide_programs(monkeypatch, 1, 1)
    return replace(options, execution=replace(options.execution, kernels="gpu", executor="persistent"))


def test_drafts_of_several_kernels_are_replaced_by_one_program(
    three_kernels: tflgpu.Options, drafts: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tflgpu.compile(softmax_of_means(), replace(three_kernels, cache="off"))
    assert expected.source.count("__kernel") == 3 and drafts == [False] * 3, "they are compiled apart, too"
    (whole,) = program.binaries_of(program.compile_program(expected.queue.context, expected.source))
    linked = list[int]()

    def link(texts: Sequence[bytes], device: object) -> bytes | None:
        linked.append(len(texts))
        return whole

    monkeypatch.setattr(program, "link_ptx", link)
    drafts.clear()
    model = tflgpu.compile(softmax_of_means(), three_kernels)
    assert drafts == [True] * 3 and linked == [3]
    np.testing.assert_array_equal(model.run(X)["y"], expected.run(X)["y"])


def test_drafts_that_nothing_links_are_compiled_again_as_a_whole(
    three_kernels: tflgpu.Options, drafts: list[bool]
) -> None:
    expected = tflgpu.compile(softmax_of_means(), replace(three_kernels, cache="off")).run(X)["y"]
    drafts.clear()
    for _ in range(2):
        np.testing.assert_array_equal(tflgpu.compile(softmax_of_means(), three_kernels).run(X)["y"], expected)
    assert drafts == [True] * 3 + [False] * 2, "the next start compiles it, and keeps it"
    tflgpu.compile(softmax_of_means(), three_kernels)
    assert len(drafts) == 5


def test_launches_of_many_functions_are_compiled_in_parts(three_kernels: tflgpu.Options, drafts: list[bool]) -> None:
    launches = replace(three_kernels, execution=replace(three_kernels.execution, executor="launch"), cache="off")
    model = tflgpu.compile(softmax_of_means(), launches)
    number = model.report.kernels
    assert drafts == [False] * number and model.source.count("#if !defined PART || PART ==") == number > 1
    np.testing.assert_allclose(model.run(X)["y"], tflgpu.compile(softmax_of_means()).run(X)["y"], rtol=1e-5)


def test_a_part_without_the_kernel_is_no_answer(device_name: str) -> None:
    text = "#if PART == 0\n__kernel void f() {}\n#else\n__kernel void h() {}\n#endif\n"
    parts = program.compile_parts(open_session(choose(device_name)).context, text, 2, draft=True)
    assert [program.make_kernel(parts, name).function_name for name in "hf"] == ["h", "f"]
    with pytest.raises(LookupError, match="no part of the program has a kernel g"):
        program.make_kernel(parts, "g")


def test_a_read_only_cache_replaces_nothing(options: tflgpu.Options, drafts: list[bool]) -> None:
    tflgpu.compile(softmax(), replace(options, cache="read"))
    assert drafts == [False]


def test_nvidia_optimizes_drafts_less() -> None:
    driver = Driver(NVIDIA, "OpenCL 3.0 CUDA", "580.159.04", can_round_division=True)
    assert compiler_options(driver, draft=True) == (*compiler_options(driver), "-cl-nv-opt-level=1")
