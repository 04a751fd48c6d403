"""Integer units of CPUs are tried before they are used; without them answers are the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflgpu
from tests.support.emulated_integer_units import emulated
from tests.support.limited_devices import let_devices_be
from tests.support.quantized_models import SHAPE, quantized_model
from tflgpu.codegen.probe_source import trial_program
from tflgpu.errors import CacheWarning
from tflgpu.kernels.integers.units import UNITS, trial_of
from tflgpu.measure import integer_check
from tflgpu.options import options_of
from tflgpu.report.report import IntegerReport
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session

pytestmark = pytest.mark.device
IMAGE = np.random.default_rng(1).integers(-128, 128, SHAPE).astype(np.int8)


@pytest.fixture
def unit(device_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The unit of the device, of which this process does not know yet whether its sums are right."""
    monkeypatch.setattr(integer_check, "FOUND", {})
    if (name := choose(device_name).integer_unit) is None:
        pytest.skip("the CPU has no integer unit")
    return name


def answer(device_name: str, cache: Path | None = None, **options: Any) -> tuple[np.ndarray, IntegerReport]:
    place = {"cache": "off"} if cache is None else {"cache_dir": cache}
    with tflgpu.compile(quantized_model(), options_of({"device": device_name} | place | options)) as model:
        (result,) = model.run([IMAGE]).values()
        assert model.report.integers is not None
        return result, model.report.integers


def broken(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the unit add no products."""
    monkeypatch.setitem(UNITS, unit, replace(UNITS[unit], multiply=()))  # type: ignore[arg-type]


@pytest.mark.optimized
def test_a_cpu_without_a_unit_gives_the_same_answer(
    unit: str, device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    integers, report = answer(device_name)
    assert report.unit == unit and report.products == 2
    floats, without = answer(device_name, integer_products="off")
    assert without.unit is None and without.products == 0
    plain = replace(choose(device_name), index=0, integer_unit=None)
    let_devices_be(monkeypatch, plain)
    simulated, simulated_report = answer(device_name)
    assert simulated_report == without
    np.testing.assert_array_equal(simulated, floats)
    steps = np.abs(floats.astype(int) - integers)
    assert steps.max() <= 1 and np.count_nonzero(steps) <= integers.size // 100, "sums halfway between two integers"
    assert np.unique(integers).size > 50


def test_half_precision_multiplies_integers_too(unit: str, device_name: str) -> None:
    single, _ = answer(device_name)
    half, report = answer(device_name, precision="fp16")
    assert report.products == 2
    assert np.abs(half.astype(int) - single).max() <= 1


def test_a_unit_with_wrong_sums_is_not_used(unit: str, device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = answer(device_name, integer_products="off")
    broken(unit, monkeypatch)
    found, report = answer(device_name)
    assert report.unit is None and report.products == 0
    np.testing.assert_array_equal(found, expected)


def test_a_unit_is_tried_once(
    unit: str, device_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_warnings: None
) -> None:
    """The cache keeps what was found; what is no such fact is found anew."""
    tried: list[str] = []
    is_right = integer_check._is_right

    def counted(*arguments: Any) -> bool:
        tried.append(unit)
        return is_right(*arguments)

    monkeypatch.setattr(integer_check, "_is_right", counted)
    broken(unit, monkeypatch)
    for quantized in ("fake_quantize", "float"):  # two models
        integer_check.FOUND.clear()
        assert answer(device_name, tmp_path, quantized=quantized)[1].unit is None
    assert len(tried) == 1
    (fact,) = tmp_path.rglob("units/*.safetensors")
    fact.write_bytes(fact.read_bytes()[:-1] + b"?")
    integer_check.FOUND.clear()
    with pytest.warns(CacheWarning, match="checksum"):
        answer(device_name, tmp_path, executor="launch")
    assert len(tried) == 2


@pytest.mark.parametrize("name", UNITS)
def test_the_trial_of_a_unit_knows_its_sums(name: str, device_name: str) -> None:
    trial = trial_of(UNITS[name])
    assert integer_check._is_right(open_session(choose(device_name)), trial, emulated(trial_program(trial), name))
    assert np.unique(trial.after).size > trial.after.size // 2
