"""The first compilation in half precision compares the model with one in float, and says what is off."""

from __future__ import annotations

import struct
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.cli.command import as_json, succeed
from tests.frontend import sized_models
from tests.frontend.control_flow import control_models
from tests.frontend.control_flow.padded_suppression import draw_boxes, padded_suppression
from tests.frontend.dynamic_models import Draw
from tests.support.models import Builder
from tflgpu.fallback.guarded_process import GuardedProcess
from tflgpu.measure import half_check
from tflgpu.measure.half_check import compared
from tflgpu.measure.trace import Result, trace
from tflgpu.options import options_of
from tflgpu.report.half_precision import HalfPrecision
from tflgpu.runtime.instance import Instance

SHAPE = (1, 5, 5, 8)
CONVOLUTION = {"padding": "SAME", "stride_h": 1, "stride_w": 1}


def model(scale: float, mask: float = 0.0, custom: bool = False) -> bytes:
    """Three pointwise convolutions: sums are ``scale`` times larger after two, and the third takes that back.

    mask: is added to what they give, before a softmax. custom: the third one is MediaPipe's transposed convolution.
    """
    builder, random = Builder(), np.random.default_rng(0)
    x = builder.input(SHAPE)
    root = float(np.sqrt(scale))
    for factor, name in ((root, "first"), (root, "second"), (1 / scale, "third")):
        weights = (factor * random.normal(size=(8, 1, 1, 8))).astype(np.float32)
        inputs = [x, builder.constant(weights), builder.constant(np.zeros(8, np.float32))]
        if custom and name == "third":
            x = builder.tensor(SHAPE, name=name)
            builder.op("Convolution2DTransposeBias", inputs, [x], custom_options=struct.pack("<3i", 1, 1, 1))
        else:
            x = builder.add("CONV_2D", inputs, SHAPE, name=name, **CONVOLUTION)
    if mask:
        values = np.where(np.arange(8) < 4, 0.0, mask).astype(np.float32)
        x = builder.add("ADD", [x, builder.constant(values)], SHAPE, name="masked")
        x = builder.add("SOFTMAX", [x], SHAPE, name="weights", beta=1.0)
    return builder.finish([x])


def compiled(data: bytes, folder: Path, **options: Any) -> tflgpu.CompiledModel:
    given = {"device": "Intel", "precision": "fp16", "cache_dir": folder, "half_check": "always"}
    return tflgpu.compile(data, options_of(given | options))


def verdict(data: bytes, folder: Path, **options: Any) -> HalfPrecision | None:
    """What is found without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", tflgpu.PrecisionWarning)
        with compiled(data, folder, **options) as opened:
            return opened.report.half


def test_a_capped_value_is_a_warning_and_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(model(1e5))
    for warm in (False, True):
        with pytest.warns(tflgpu.PrecisionWarning, match="'second' .* capped at -?65504.*tolerance") as found:
            opened = compiled(path.read_bytes(), tmp_path)
        assert ("half check" in opened.seconds) != warm
        assert found[0].filename == __file__
        half = opened.report.half
        assert half is not None and half.first is not None and half.first.operators == (1,)
        assert abs(half.first.extreme) > 65504 and half.error > 0.05
        opened.close()


def test_inspect_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLGPU_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.tflite"
    path.write_bytes(model(1.0))
    arguments = ("inspect", path, "--device", "Intel", "--precision", "fp16")
    assert "was not checked" in succeed(*arguments)
    found = verdict(path.read_bytes(), tmp_path / "cache", half_check="auto")
    assert found is not None
    assert as_json(*arguments)["half"]["error"] == found.error
    assert as_json("inspect", path, "--device", "Intel", "--precision", "fp32")["half"] is None


def test_what_half_can_hold_is_compared_with_litert(tmp_path: Path) -> None:
    half = verdict(model(1.0), tmp_path)
    assert half is not None and half.judge.startswith("LiteRT") and half.first is None
    assert 0 < half.error < 5e-3


def test_a_model_with_operators_that_litert_has_in_xnnpack_only_is_compared_with_it(tmp_path: Path) -> None:
    half = verdict(model(1.0, custom=True), tmp_path, half_check="auto")
    assert half is not None and half.judge.startswith("LiteRT") and 0 < half.error < 5e-3
    with pytest.warns(tflgpu.PrecisionWarning, match="'second' .* off by"):
        compiled(model(1e5, custom=True), tmp_path, half_check="auto").close()


def test_masks_may_be_capped(tmp_path: Path) -> None:
    half = verdict(model(1.0, mask=-1e9), tmp_path)
    assert half is not None and half.judge and half.first is None


@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_without_litert_fp32_judges_on_request(scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_check, "is_installed", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with compiled(model(scale, -1e9), tmp_path) as opened:
            half = opened.report.half
    assert half is not None and half.judge == "fp32"
    assert (half.first.name if half.first else "") == ("second" if scale > 1 else "")
    unasked = verdict(model(scale), tmp_path, half_check="auto")
    assert unasked is not None and "not installed" in unasked.unchecked


def test_who_does_not_ask_does_not_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_check, "HalfCheck", None)
    auto = {"half_check": "auto"}
    assert verdict(model(1.0), tmp_path, **auto, precision="fp32") is None
    assert verdict(model(1.0), tmp_path, **auto, cache="off") is None
    assert verdict(model(1.0), tmp_path, half_check="off") is None


@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_a_late_answer_is_waited_for(scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT begins to judge only after the compiler has finished."""
    built, judge = threading.Event(), GuardedProcess.judge

    def late(*arguments: Any) -> Any:
        assert built.wait(60)
        return judge(*arguments)

    def wait(check: half_check.HalfCheck, instance: Instance) -> HalfPrecision:
        threading.Timer(0.2, built.set).start()
        return verdict_of(check, instance)

    verdict_of = half_check.HalfCheck.verdict
    monkeypatch.setattr(GuardedProcess, "judge", late)
    monkeypatch.setattr(half_check.HalfCheck, "verdict", wait)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", tflgpu.PrecisionWarning)
        with compiled(model(scale), tmp_path, half_check="auto") as opened:
            half = opened.report.half
    assert half is not None and half.judge and not half.unchecked
    assert bool(found) == (scale > 1)


@pytest.mark.parametrize("end", [half_check.RefusedError("no such operator"), half_check.CrashedError("late", True)])
def test_where_litert_refuses_or_is_late_fp32_judges_on_request(
    end: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise end

    monkeypatch.setattr(GuardedProcess, "judge", refuse)
    half = verdict(model(1.0), tmp_path, half_check="auto")
    assert half is not None and "LiteRT cannot run it" in half.unchecked
    half = verdict(model(1.0), tmp_path, half_check="always")
    assert half is not None and half.judge == "fp32" and 0 < half.error < 5e-3
    with pytest.warns(tflgpu.PrecisionWarning, match="'second' .* capped"):
        compiled(model(1e5), tmp_path, half_check="always").close()


def test_tensors_are_compared_by_their_own_ranges() -> None:
    right = np.linspace(0, 10, 5, dtype=np.float32)
    floats = [Result("a", (0,), right), Result("", (1,), right), Result("b", (2,), np.full(5, 7e4, np.float32))]
    halves = [Result("a", (0,), right + 1), Result("", (1,), right), Result("b", (2,), np.full(5, 65504, np.float32))]
    found = compared(halves, floats, {"b": 7e4})
    assert [each.name for each in found] == ["a", "b"]
    assert found[0].error == pytest.approx(0.1) and not found[0].extreme
    assert found[1].extreme == 7e4


OBSERVED: dict[str, tuple[bytes, Draw]] = {
    **{name: (build(), draw) for name, (build, draw) in control_models.MODELS.items()},
    **{name: sized_models.MODELS[name] for name in ("suppression", "detector", "boolean_mask")},
    "parted loop": (padded_suppression(2, 3, 8, 20), lambda rng: [draw_boxes(rng, 2, 24, 2.0)]),
}


@pytest.mark.parametrize("name", OBSERVED)
def test_loops_and_open_sizes_are_observed(name: str) -> None:
    """Kernels have a launch each there, and outputs the sizes and the checks of a run."""
    data, draw = OBSERVED[name]
    options, inputs = (
        tflgpu.Options(device="Intel", precision="fp32", fallback="forbid"),
        draw(np.random.default_rng(0)),
    )
    found: dict[int, Any] = {}
    assert trace(data, inputs, options, found)
    for got, wanted in zip(found.values(), tflgpu.compile(data, options).run(inputs).values(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
