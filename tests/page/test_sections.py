"""The page agrees with the report, the profile and the plan, also where a model is cut into pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tflgpu
from tests.cli.command import MODEL, unsupported_model
from tests.frontend.control_flow.control_models import MODELS
from tests.support.models import WITHOUT_KERNEL
from tflgpu.page.contents import Section, gather_sections
from tflgpu.page.report_page import target_of
from tflgpu.report.profile import Profile

OPTIONS = tflgpu.Options(cache="off")


def gathered(data: bytes, *inputs: object) -> tuple[tflgpu.CompiledModel, Profile, tuple[Section, ...]]:
    model = tflgpu.compile(data, OPTIONS)
    profile = model.profile(list(inputs), runs=1)
    return model, profile, gather_sections(data, OPTIONS, target_of(model), model.report, profile)


def test_a_model_of_one_piece() -> None:
    data = MODEL.read_bytes()
    model, profile, (section,) = gathered(data, np.zeros((1, 8, 8, 1), np.float32))
    (piece,) = section.pieces
    assert (section.on_device, section.call, section.crossing) == (True, "", ())
    assert [k.number for k in piece.kernels] == list(range(len(profile.kernels)))
    for kernel, time in zip(piece.kernels, profile.kernels, strict=True):
        assert (kernel.function, kernel.macs, kernel.bytes) == (time.kernel, time.macs, time.bytes)
        assert (kernel.seconds, kernel.groups) == (time.seconds, time.groups)
        assert [o.code for o in kernel.operators] == list(time.operators)
        assert all(source < kernel.number for source in kernel.sources)
    assert section.seconds == pytest.approx(profile.seconds)
    assert piece.kernels[0].from_outside and piece.kernels[-1].is_output
    assert piece.arena_bytes == model.report.arena_bytes
    for tensor in piece.tensors:
        assert tensor.offset >= 0 and tensor.offset + tensor.bytes <= piece.arena_bytes
        assert tensor.first <= tensor.last < len(piece.kernels)


@pytest.mark.filterwarnings("ignore::tflgpu.FallbackWarning")
def test_a_model_with_operators_on_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    path = tmp_path / "model.tflite"
    unsupported_model(path)
    _, profile, (cpu, device) = gathered(path.read_bytes(), np.zeros((1, 4), np.float32))
    assert (cpu.on_device, device.on_device) == (False, True)
    assert [o.code for o in cpu.operators] == [WITHOUT_KERNEL] * 2 and cpu.operators[0].reasons
    assert (device.crossing, device.crossing_bytes) == (("y",), 16)
    assert (cpu.seconds,) == profile.cpu_seconds and cpu.seconds > 0
    assert device.seconds == pytest.approx(profile.seconds)


def test_a_loop() -> None:
    build, draw = MODELS["fading"]
    model, profile, sections = gathered(build(), *draw(np.random.default_rng(0)))
    (loop,) = (section for section in sections if section.call)
    assert loop.call == "WHILE" and loop.pieces[0].title == "one iteration"
    kernels = [k for section in sections for piece in section.pieces for k in piece.kernels]
    assert len(kernels) == len(profile.kernels) == model.report.kernels
    assert [k.number for k in kernels] == list(range(len(kernels)))


def test_a_branch_has_the_side_that_the_run_did_not_take() -> None:
    build, draw = MODELS["branches"]
    model, profile, sections = gathered(build(), *draw(np.random.default_rng(0)))
    (branch,) = (section for section in sections if section.call)
    assert [piece.title for piece in branch.pieces] == ["then", "otherwise"]
    assert sorted(piece.taken for piece in branch.pieces) == [False, True]
    kernels = [k for section in sections for piece in section.pieces for k in piece.kernels]
    assert len(kernels) == model.report.kernels
    measured = [k for k in kernels if k.seconds is not None]
    assert [k.function for k in measured] == [time.kernel for time in profile.kernels]
    assert len(measured) < len(kernels)
