"""``Numerics(tolerance=)``: outputs stay near the fp32 answers, on inputs that calibration did not see, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.cli.command import fail
from tests.support import litert
from tests.support.models import Builder
from tflgpu.options import options_of

SHAPE = (1, 9, 9, 8)
TOLERANCE = 0.01
CONVOLUTION = {"padding": "SAME", "stride_h": 1, "stride_w": 1}


def model(scale: float) -> bytes:
    """Three pointwise convolutions. The sums of the second are ``scale`` times larger; the third takes that back."""
    builder, random = Builder(), np.random.default_rng(0)
    x = builder.input(SHAPE)
    for factor, name in ((1.0, "first"), (scale, "second"), (1 / scale, "third")):
        weights = (factor * random.normal(size=(8, 1, 1, 8))).astype(np.float32)
        x = builder.add(
            "CONV_2D",
            [x, builder.constant(weights), builder.constant(np.zeros(8, np.float32))],
            SHAPE,
            name=name,
            **CONVOLUTION,
        )
    return builder.finish([x])


def unseen(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(-1, 1, SHAPE).astype(np.float32)


def compiled(scale: float, **options: Any) -> tflgpu.CompiledModel:
    return tflgpu.compile(model(scale), options_of({"device": "Intel", "cache": "off"} | options))


def _error(scale: float, candidate: tflgpu.CompiledModel, x: NDArray[np.float32]) -> float:
    (expected,), (got,) = litert.run(model(scale), x).values(), candidate.run(x).values()
    return float(abs(got - expected).max() / (expected.max() - expected.min()))


@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
def test_what_outgrows_half_stays_in_float(kernels: str) -> None:
    with compiled(1e4, precision="fp16", kernels=kernels) as half:
        assert _error(1e4, half, unseen(0)) > 10 * TOLERANCE
    with compiled(1e4, tolerance=TOLERANCE, kernels=kernels) as mixed:
        assert max(_error(1e4, mixed, unseen(seed)) for seed in range(5)) < TOLERANCE
        found = mixed.report.mixed
    assert found is not None and found.generated
    assert "second" in [kept.name for kept in found.kept]
    assert found.half_error > TOLERANCE > found.error
    assert len(found.kept) < found.tensors
    assert (found.kept[0].name, found.kept[0].operators) == ("second", (1,))
    assert found.kept[0].error > TOLERANCE
    assert mixed.precision == "mixed"


def test_nothing_stays_in_float_where_half_is_near_enough() -> None:
    with compiled(1.0, tolerance=TOLERANCE) as mixed:
        assert mixed.report.mixed is not None and mixed.report.mixed.kept == ()
        assert mixed.report.arena_bytes == compiled(1.0, precision="fp16").report.arena_bytes


def test_a_small_tolerance_keeps_all() -> None:
    with compiled(1.0, tolerance=1e-6) as mixed:
        assert _error(1.0, mixed, unseen(0)) < 2e-6


def test_the_callers_inputs_count() -> None:
    """Sums outgrow half for large inputs only."""
    large = [1e5 * unseen(seed) for seed in range(100, 103)]
    with compiled(1.0, tolerance=TOLERANCE, calibration=large) as mixed:
        assert mixed.report.mixed is not None and not mixed.report.mixed.generated
        assert mixed.report.mixed.inputs == len(large)
        assert mixed.report.mixed.kept
        assert _error(1.0, mixed, 1e5 * unseen(7)) < TOLERANCE


def test_a_warm_start_repeats_nothing(tmp_path: Path) -> None:
    options = {"cache": "readwrite", "cache_dir": tmp_path, "tolerance": TOLERANCE}
    with compiled(1e4, **options) as first, compiled(1e4, **options) as second:
        assert "calibrate" in first.seconds and "calibrate" not in second.seconds
        assert second.report == first.report
        np.testing.assert_array_equal(*(next(iter(m.run(unseen(1)).values())) for m in (first, second)))
    for other in ({"tolerance": 0.02}, {"calibration": [unseen(0)]}):
        with pytest.raises(tflgpu.CacheMissError):
            compiled(1e4, **options | other | {"cache": "require"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.01, "precision": "fp16"}, "tolerance chooses the precision; 'fp16' was given"),
        ({"tolerance": 0}, "must be more than 0 and at most 1"),
        ({"tolerance": "small"}, "a part of an output's range"),
        ({"calibration": [], "tolerance": 0.01}, "at least one set of inputs"),
        ({"calibration": {"x": np.zeros(3)}, "tolerance": 0.01}, "a list of inputs"),
        ({"calibration": [3], "tolerance": 0.01}, "arrays were expected"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        options_of(options)


def test_inputs_that_do_not_fit_the_model() -> None:
    with pytest.raises(ValueError, match="shape"):
        compiled(1.0, tolerance=TOLERANCE, calibration=[np.zeros((1, 2, 2, 8), np.float32)])


def test_options_with_equal_inputs_are_equal() -> None:
    first, second, other = (
        tflgpu.Options(numerics=tflgpu.Numerics(tolerance=0.01, calibration=[unseen(seed)])) for seed in (1, 1, 2)
    )
    assert first == second != other
    assert len({first, second, other}) == 2


def test_a_page_is_not_of_another_plan(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(model(1.0))
    arguments = ("profile", tmp_path / "m.tflite", "--tolerance", "0.01", "--html", tmp_path / "m.html")
    assert "leave out --html or --tolerance" in fail(*arguments)
