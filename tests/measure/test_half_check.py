"""The first compilation in half precision compares the model with one in float, and says what is off."""

from __future__ import annotations

import re
import struct
import threading
import warnings
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.cli.command import as_json, succeed
from tests.frontend import sized_models
from tests.frontend.control_flow import control_models
from tests.frontend.control_flow.control_models import Kind, while_loop
from tests.frontend.control_flow.padded_suppression import draw_boxes, padded_suppression
from tests.frontend.dynamic_models import Draw, DynamicBuilder
from tests.frontend.stateful_models import assign, first_values, read
from tests.measure.half_attacks import Attack, cosines_of_rows, joined
from tests.support.models import Builder
from tflgpu.fallback.guarded_process import GuardedProcess
from tflgpu.measure import half_check
from tflgpu.measure.half_check import compared
from tflgpu.measure.mixed_precision.generated_inputs import checked_inputs
from tflgpu.measure.trace import Result, trace
from tflgpu.model.tensor_info import Quantization, TensorInfo
from tflgpu.options import options_of
from tflgpu.report.half_precision import NOT_ASKED, NOT_KEPT, HalfPrecision
from tflgpu.runtime.instance import Instance

SHAPE = (1, 5, 5, 8)
CONVOLUTION: dict[str, Any] = {"padding": "SAME", "stride_h": 1, "stride_w": 1}


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
    """The verdict of the check, which must not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", tflgpu.PrecisionWarning)
        with compiled(data, folder, **options) as opened:
            return opened.report.half


@pytest.fixture
def unrepaired(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor can be kept in float."""
    monkeypatch.setattr(half_check.HalfCheck, "may_be_repaired", lambda *_: False)


@pytest.mark.usefixtures("unrepaired")
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


def test_what_is_off_is_kept_in_float(tmp_path: Path) -> None:
    for warm in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("error", tflgpu.PrecisionWarning)
            opened = compiled(model(3e4), tmp_path, half_check="auto")
        half, mixed = opened.report.half, opened.report.mixed
        assert ("half check" in opened.seconds) != warm
        assert half is not None and half.repaired > 0.05 and half.error < 5e-3
        assert mixed is not None and "second" in {kept.name for kept in mixed.kept}
        floats = opened.report.floats
        assert floats is not None and ("second", (1,), "measured", 400) in map(astuple, floats.tensors)
        opened.close()


def test_inspect_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLGPU_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.tflite"
    path.write_bytes(model(3e4))
    arguments = ("inspect", path, "--device", "Intel", "--precision", "fp16")
    assert "was not checked" in succeed(*arguments)
    found = verdict(path.read_bytes(), tmp_path / "cache", half_check="auto")
    assert found is not None
    report = as_json(*arguments)
    assert report["half"]["repaired"] == found.repaired > found.error
    assert "second" in {tensor["name"] for tensor in report["floats"]["tensors"]}  # more, where runs take long
    text = " ".join(succeed(*arguments).split())
    assert re.search("in float for precision: .* bytes more than in half.*in the outputs: .*'second'", text)
    assert as_json("inspect", path, "--device", "Intel", "--precision", "fp32")["half"] is None


def test_what_half_can_hold_is_compared_with_litert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where an output is off, LiteRT runs its plain kernels, which take much longer."""
    monkeypatch.setattr(GuardedProcess, "extremes", None)
    monkeypatch.setattr(half_check, "FEW_KERNELS", 0)  # as if it were a large model, which is repaired for its extremes
    half = verdict(model(1.0), tmp_path)
    assert half is not None and half.judge.startswith("LiteRT") and half.first is None
    assert 0 < half.error < 5e-3


@pytest.mark.usefixtures("unrepaired")
def test_a_model_with_operators_that_litert_has_in_xnnpack_only_is_compared_with_it(tmp_path: Path) -> None:
    half = verdict(model(1.0, custom=True), tmp_path, half_check="auto")
    assert half is not None and half.judge.startswith("LiteRT") and 0 < half.error < 5e-3
    with pytest.warns(tflgpu.PrecisionWarning, match="'second' .* off by"):
        compiled(model(1e5, custom=True), tmp_path, half_check="auto").close()


def test_masks_may_be_capped(tmp_path: Path) -> None:
    half = verdict(model(1.0, mask=-1e9), tmp_path)
    assert half is not None and half.judge and half.first is None


@pytest.mark.usefixtures("unrepaired")
@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_without_litert_fp32_judges_on_request(scale: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_check, "is_installed", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with compiled(model(scale), tmp_path) as opened:
            half = opened.report.half
    assert half is not None and half.judge == "fp32"
    assert (half.first.name if half.first else "") == ("second" if scale > 1 else "")
    unasked = verdict(model(scale), tmp_path, half_check="auto")
    assert unasked is not None and "not installed" in unasked.unchecked


def test_who_does_not_ask_does_not_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_check, "HalfCheck", None)
    auto = {"half_check": "auto"}
    assert verdict(model(1.0), tmp_path, **auto, precision="fp32") is None
    for options, reason in ((auto | {"cache": "off"}, NOT_KEPT), ({"half_check": "off"}, NOT_ASKED)):
        assert verdict(model(1.0), tmp_path, **options) == HalfPrecision("", unchecked=reason)


@pytest.mark.usefixtures("unrepaired")
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


@pytest.mark.usefixtures("unrepaired")
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


WIDE = (1, 5, 5, 40)


def spoiled(
    builder: Builder, x: int, after: Callable[[Builder, int], int] = lambda _, y: y, factor: float = 300.0
) -> int:
    """A result with numbers that half precision caps, and products that make them small again."""
    channels = builder.shape(x)[-1]
    for scale in (factor, factor, factor**-2):
        weights = (scale * builder.random.normal(size=(channels, 1, 1, channels))).astype(np.float32)
        inputs = [x, builder.constant(weights), builder.constant(np.zeros(channels, np.float32))]
        x = builder.add("CONV_2D", inputs, builder.shape(x), **CONVOLUTION)
    return after(builder, x)


def kept_in_float(data: bytes, folder: Path, **options: Any) -> HalfPrecision:
    """The verdict of the check on a model that more tensors in float make right."""
    half = verdict(data, folder, half_check="auto", **options)
    assert half is not None and half.repaired > 5e-3 >= half.error
    return half


def best(builder: Builder, x: int) -> int:
    values, places = builder.tensor((1, 5, 5, 3)), builder.tensor((1, 5, 5, 3), "int32")
    builder.op("TOPK_V2", [x, builder.constant(np.array(3, np.int32))], [values, places])
    return values


def whole(builder: Builder, x: int) -> int:
    y = builder.add("MUL", [x, builder.constant(np.array(100, np.float32))])
    return builder.add("CAST", [y], builder.shape(x), "int32")


@pytest.mark.parametrize("after", [best, whole])
def test_choices_and_integers_are_compared(after: Callable[[Builder, int], int], tmp_path: Path) -> None:
    builder = Builder()
    kept_in_float(builder.finish([spoiled(builder, builder.input(WIDE), after)]), tmp_path)


def ten_times_as_large() -> bytes:
    """Numbers of unit size are in range."""
    builder = Builder()
    return builder.finish([spoiled(builder, builder.input(WIDE), factor=12.0)])


def quantized_range() -> bytes:
    """Integers that stand for numbers up to 12,800."""
    builder = Builder()
    x = builder.input(WIDE, "int8", quantization=Quantization([100.0], [0]))
    return builder.finish([spoiled(builder, builder.add("DEQUANTIZE", [x], WIDE), factor=2.0)])


def repeated() -> bytes:
    """A loop of as many turns as an input says."""
    builder, one = DynamicBuilder(), (1, 1, 1, 1)
    x = builder.input(WIDE)
    most = builder.add("SLICE", [x, builder.ints([0] * 4), builder.ints(one)], one)
    most = builder.add("ADD", [builder.add("ABS", [most], one), builder.constant(np.float32(2))], one)
    most = builder.add("RESHAPE", [builder.add("CAST", [most], one, "int32"), builder.ints([1])], (1,), "int32")

    def again(b: DynamicBuilder, values: list[int]) -> list[int]:
        return [b.add("LESS", [values[1], values[2]], (1,), "bool")]

    def step(b: DynamicBuilder, values: list[int]) -> list[int]:
        image, count, most = values
        return [b.add("TANH", [spoiled(b, image)], WIDE), b.add("ADD", [count, b.ints([1])], (1,), "int32"), most]

    kinds: list[Kind] = [("float32", WIDE), ("int32", (1,)), ("int32", (1,))]
    return builder.finish([while_loop(builder, [x, builder.ints([0]), most], kinds, again, step)[0]])


@pytest.mark.parametrize("build", [ten_times_as_large, quantized_range, repeated])
def test_inputs_and_operators_of_all_kinds_are_tried(build: Callable[[], bytes], tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", tflgpu.PrecisionWarning)
        with compiled(build(), tmp_path, half_check="auto") as opened:
            half = opened.report.half
    assert half is not None and not half.unchecked
    assert half.repaired > 0.05 or (half.error > 0.05 and found)


def test_every_signature_is_checked(tmp_path: Path) -> None:
    builder, other = Builder(), Builder()
    x, y = builder.input(WIDE, name="x"), other.input(WIDE, name="y")
    builder.subgraph(other, [spoiled(other, y)], signature="spoiled")
    data = builder.finish([builder.add("RELU", [x])], signature="plain")
    assert not (verdict(data, tmp_path, half_check="auto", signature="plain") or HalfPrecision("")).repaired
    assert kept_in_float(data, tmp_path, signature="spoiled").judge == "fp32"


@pytest.mark.parametrize("options", [{"uint8_inputs": {"x": (127.5, 127.5)}}, {"bound": {"y": "state"}}])
def test_other_inputs_than_the_files_are_checked(options: dict[str, Any], tmp_path: Path) -> None:
    builder = Builder()
    x, state = builder.input(WIDE, name="x"), builder.input(WIDE, name="state")
    y = builder.add("TANH", [builder.add("ADD", [state, x])], name="y")
    assert kept_in_float(builder.finish([spoiled(builder, x), y]), tmp_path, **options).judge == "fp32"


def test_three_steps_of_a_state_are_checked(tmp_path: Path) -> None:
    """Only in the second step a state is so large that products with it exceed half."""
    builder = Builder()
    x = builder.input((1, 8), name="x")
    first_values(builder, {"sum": np.zeros((1, 8), np.float32)})
    before = read(builder, "sum", (1, 8))
    weights = builder.constant((5e4 * np.eye(8)).astype(np.float32))
    large = builder.add("FULLY_CONNECTED", [before, weights], (1, 8), name="large")
    small = builder.add("FULLY_CONNECTED", [large, builder.constant(np.full((8, 8), 1e-5, np.float32))], (1, 8))
    assign(builder, "sum", builder.add("ADD", [before, x], (1, 8)))
    kept_in_float(builder.finish([small]), tmp_path)


def test_other_sizes_of_free_axes_are_checked(tmp_path: Path) -> None:
    """Products of columns grow with the number of rows."""
    builder = Builder()
    x = builder.input((1, 4, 8), name="x", shape_signature=(1, -1, 8))
    y = builder.add("BATCH_MATMUL", [x, x], (1, 8, 8), adj_x=True)
    small = builder.add("MUL", [y, builder.constant(np.array(1e-3, np.float32))])
    z = builder.add("BATCH_MATMUL", [y, small], (1, 8, 8))
    with compiled(builder.finish([z]), tmp_path, half_check="auto") as opened:
        inputs = np.ones((1, 30000, 8), np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("error", tflgpu.PrecisionWarning)
            (got,) = opened.run(inputs).values()
    np.testing.assert_allclose(got, 8 * 30000.0**2 * 1e-3, rtol=5e-3)


def test_what_was_stored_without_a_check_is_checked_later(tmp_path: Path) -> None:
    builder = Builder()
    data = builder.finish([spoiled(builder, builder.input(WIDE))])
    unasked = verdict(data, tmp_path, half_check="off")
    assert unasked is not None and unasked.unchecked == NOT_ASKED
    kept_in_float(data, tmp_path)
    assert kept_in_float(data, tmp_path, cache="require")


def test_the_callers_inputs_are_tried(tmp_path: Path) -> None:
    """Generated ones are a thousand times as small."""
    builder = Builder()
    x = builder.input(WIDE, name="x")
    y = x
    for factor in (1.0, 1e-3):
        y = builder.add("CONV_2D", [y, builder.weights(40, 1, 1, 40, scale=factor), builder.weights(40)], **CONVOLUTION)
    data = builder.finish([y])
    assert not (verdict(data, tmp_path, half_check="auto") or HalfPrecision("")).repaired
    assert kept_in_float(data, tmp_path, calibration=[np.full(WIDE, 1e5, np.float32)]).inputs == 1


def test_inputs_far_from_zero_are_tried(tmp_path: Path) -> None:
    """Near rows are alike in half precision only if they are far from zero."""
    kept_in_float(joined({"x": Attack(cosines_of_rows)}), tmp_path)


def test_inputs_of_one_shape_are_drawn_apart() -> None:
    infos = [TensorInfo(name, (1, 16, 64), "float32", None) for name in ("x", "y")]
    sets = checked_inputs(infos, [None, None])
    assert not any(np.array_equal(x, y) for x, y in sets)
    assert [round(float(np.mean(each))) for each in sets] == [0, 0, 0, 30]
    picture = TensorInfo("image", (1, 16, 16, 3), "float32", None)
    assert len(checked_inputs([picture], [None])) == 3


def classes_of_pixels(least: float) -> bytes:
    """A class for each pixel, of which logits above the least number are multiplied by 300."""
    builder = Builder()
    x = builder.input((1, 64, 64, 3))
    for depth, channels in ((3, 64), (64, 64)):
        weights = builder.constant(builder.random.normal(0, depth**-0.5, (channels, 1, 1, depth)).astype(np.float32))
        bias = builder.constant(np.zeros(channels, np.float32))
        x = builder.add("CONV_2D", [x, weights, bias], (1, 64, 64, channels), **CONVOLUTION)
    high = builder.add("RELU", [builder.add("SUB", [x, builder.constant(np.array(least, np.float32))])])
    logits = builder.add("ADD", [x, builder.add("MUL", [high, builder.constant(np.array(300, np.float32))])])
    return builder.finish([builder.add("SOFTMAX", [logits], beta=1.0)])


def classes_in_half(least: float, folder: Path) -> HalfPrecision:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tflgpu.PrecisionWarning)
        with compiled(classes_of_pixels(least), folder, half_check="auto") as opened:
            half = opened.report.half
    assert half is not None
    return half


@pytest.mark.usefixtures("unrepaired")
def test_drawn_inputs_whose_class_any_rounding_changes_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten times the usual numbers make another class of some pixels where weights are rounded, in LiteRT, too."""
    half = classes_in_half(8.0, tmp_path)
    assert half.judge.startswith("LiteRT") and half.inputs == 2 and half.error < 5e-3
    monkeypatch.setattr(half_check.HalfCheck, "_unstable", lambda *_: set())
    assert classes_in_half(8.0, tmp_path / "other").error > 0.05


@pytest.mark.usefixtures("unrepaired")
def test_a_picture_counts_whatever_rounding_changes(tmp_path: Path) -> None:
    half = classes_in_half(0.0, tmp_path)
    assert half.inputs == 1 and half.error > 5e-3


def test_a_large_model_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("FEW_KERNELS", "MOST_KERNELS"):
        monkeypatch.setattr(half_check, limit, 0)
    for repeated in ("compile_model", "trace"):
        monkeypatch.setattr(half_check, repeated, None)
    with pytest.warns(tflgpu.PrecisionWarning, match="is off by .* compared with LiteRT"):
        compiled(joined({"x": Attack(cosines_of_rows)}), tmp_path, half_check="auto").close()


def test_weights_of_dynamic_range_are_floats_in_litert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT rounds a row to 255 steps. With one large number among them, the others are lost."""
    monkeypatch.setattr(half_check, "compile_model", None)
    builder, random = Builder(), np.random.default_rng(0)
    x = builder.input((4, 64), name="x")
    small = np.where(np.arange(64) > 0, random.integers(-127, 128, (32, 64)), 0).astype(np.int8)
    weights = builder.constant(small, quantization=Quantization([0.01] * 32, [0] * 32))
    data = builder.finish([builder.add("FULLY_CONNECTED", [x, weights], (4, 32))])
    row = np.where(np.arange(64) > 0, random.standard_normal((4, 64)), 1000).astype(np.float32)
    half = verdict(data, tmp_path, half_check="auto", calibration=[row], kernels="gpu")
    assert half is not None and half.judge.startswith("LiteRT") and half.error < 5e-3


def test_drawn_numbers_that_are_no_indices_are_made_positive(tmp_path: Path) -> None:
    builder = Builder()
    x = builder.input((1, 16), name="x")
    index = builder.add("CAST", [x], (1, 16), "int32")
    rows = builder.add("GATHER", [builder.weights(4, 8), index], (1, 16, 8), axis=0)
    half = verdict(builder.finish([builder.add("TANH", [rows])]), tmp_path, half_check="auto")
    assert half is not None and half.judge.startswith("LiteRT") and half.inputs == 1


def test_half_may_be_as_far_from_litert_as_fp32_in_quantized_models(shared: Path, tmp_path: Path) -> None:
    """Their integers round to other steps."""
    data = (shared / "models" / "yamnet_audio_classifier_with_metadata.tflite").read_bytes()
    half = verdict(data, tmp_path, half_check="auto")
    assert half is not None and half.judge.startswith("LiteRT") and not half.is_off and not half.repaired
    assert 5e-3 < half.error <= half.in_fp32 and "(in fp32 by" in half.summary
