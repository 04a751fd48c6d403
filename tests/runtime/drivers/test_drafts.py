"""Programs that are compiled in less time where faster machine code replaces them before the first run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tflgpu.model.writer import ModelBuilder
from tflgpu.runtime.opencl import build, program, quirks
from tflgpu.runtime.opencl.quirks import NVIDIA, Driver, Quirk, compiler_options

# Every OpenCL compiler has it.
IN_A_HURRY = "-cl-opt-disable"

X = np.random.default_rng(0).normal(size=(1, 4, 4, 8)).astype(np.float32)


def softmax() -> bytes:
    builder = ModelBuilder()
    x, y = builder.input((1, 4, 4, 8)), builder.tensor((1, 4, 4, 8), name="y")
    builder.op("SOFTMAX", [x], [y], {"beta": 1.0})
    return builder.finish([y])


@pytest.fixture
def options(device_name: str, tmp_path: Path) -> tflgpu.Options:
    return tflgpu.Options(device=device_name, precision="fp32", cache_dir=tmp_path)


@pytest.fixture
def drafts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each program of a model that this process compiles, whether it is a draft. Every driver can make them."""
    hurried = Quirk("can hurry", lambda _: True, "", "", "", draft_options=(IN_A_HURRY,))
    monkeypatch.setattr(quirks, "QUIRKS", (*quirks.QUIRKS, hurried))
    monkeypatch.setattr(build, "start_compiler", lambda _: True)  # else a thread compiles an empty program
    monkeypatch.setattr(build, "compiled_apart", lambda *_: None)
    made = list[bool]()

    def compiled(*arguments: object, draft: bool = False) -> object:
        made.append(draft)
        return program.compile_program(*arguments, draft=draft)

    monkeypatch.setattr(build, "compile_program", compiled)
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


def test_a_read_only_cache_replaces_nothing(options: tflgpu.Options, drafts: list[bool]) -> None:
    tflgpu.compile(softmax(), replace(options, cache="read"))
    assert drafts == [False]


def test_nvidia_optimizes_drafts_less() -> None:
    driver = Driver(NVIDIA, "OpenCL 3.0 CUDA", "580.159.04", can_round_division=True)
    assert compiler_options(driver, draft=True) == (*compiler_options(driver), "-cl-nv-opt-level=1")
