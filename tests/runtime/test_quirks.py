"""Drivers' quirks, on devices that are none: what they change, and that the table is complete."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

import tflgpu
from tflgpu.runtime.opencl import devices, program, session
from tflgpu.runtime.opencl.quirks import INTEL, NVIDIA, OCLGRIND, POCL, QUIRKS, Driver, compiler_options, quirks_of

ROOT = Path(__file__).parents[2]

ZEN5 = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic"
SKYLAKE = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-skylake-avx512"
ARM = "OpenCL 3.0 PoCL HSTR: pthread-aarch64-unknown-linux-gnu-generic"


def device(platform: str, version: str = "OpenCL 3.0", kind: int = cl.device_type.CPU, units: int = 2) -> Any:
    return SimpleNamespace(
        platform=SimpleNamespace(name=platform, get_devices=list),
        name=f"a device of {platform}",
        version=version,
        driver_version="1.0",
        type=kind,
        profile="FULL_PROFILE",
        single_fp_config=0,
        global_mem_size=1 << 30,
        max_compute_units=units,
        extensions="",
    )


def order(monkeypatch: pytest.MonkeyPatch, *found: Any) -> list[str]:
    """The platforms of devices in the order in which ``tflgpu devices`` lists them."""
    for one in found:
        one.platform.get_devices = lambda one=one: [one]
    monkeypatch.setattr(cl, "get_platforms", lambda: [one.platform for one in found])
    return [d.platform for d in devices._devices.__wrapped__()]


def test_a_pocl_that_cannot_compile_comes_after_all_that_work(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = device(OCLGRIND, kind=cl.device_type.CPU | cl.device_type.GPU)
    broken, working = device(POCL, ZEN5), device(POCL, SKYLAKE)
    gpu = device(NVIDIA, kind=cl.device_type.GPU)
    assert order(monkeypatch, broken, simulator, device(INTEL), gpu) == [NVIDIA, INTEL, OCLGRIND, POCL]
    assert order(monkeypatch, simulator, working, device(INTEL), gpu) == [NVIDIA, INTEL, POCL, OCLGRIND]
    assert order(monkeypatch, broken) == [POCL]


@pytest.mark.parametrize(("version", "concerned"), [(ZEN5, True), (SKYLAKE, False), (ARM, False)])
def test_only_x86_has_no_cpu_named_generic(version: str, concerned: bool) -> None:
    names = [quirk.name for quirk in quirks_of(Driver(POCL, version, "3.0"))]
    assert ("unknown CPU" in names) == concerned


class Refused(cl.RuntimeError):
    """As a driver's compiler refuses a program."""

    routine = "clBuildProgram"

    def __str__(self) -> str:
        return "refused"


@pytest.mark.parametrize(("version", "advised"), [(ZEN5, True), (SKYLAKE, False)])
def test_a_build_error_says_what_to_install(version: str, advised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Refused

    fake = SimpleNamespace(_build=refuse, get_build_info=lambda *_: "error: unknown target CPU 'generic'")
    monkeypatch.setattr(program.cl._cl, "_Program", lambda *_: fake)
    with pytest.raises(tflgpu.BuildError, match="a device of Portable") as caught:
        program.compile_program(SimpleNamespace(devices=[device(POCL, version)]), "source")
    assert ('pip install "tflgpu[cpu]"' in caught.value.message) == advised
    assert caught.value.log == "error: unknown target CPU 'generic'"


def test_a_device_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise Refused

    order(monkeypatch, device(POCL, ZEN5))
    (broken,) = devices._devices.__wrapped__()
    monkeypatch.setattr(session.cl, "Context", refuse)
    with pytest.raises(tflgpu.DeviceError, match=r"failed while being opened.*tflgpu\[cpu\]"):
        session.open_session(broken)


def test_division_is_rounded_where_that_is_an_option() -> None:
    driver = Driver(INTEL, "OpenCL 3.0", "1.0")
    assert compiler_options(driver) == ()
    rounding = replace(driver, can_round_division=True)
    assert compiler_options(rounding) == ("-cl-fp32-correctly-rounded-divide-sqrt",)


def test_a_remedy_elsewhere_is_there() -> None:
    """Files that the records name."""
    for quirk in QUIRKS:
        for path in re.findall(r"[\w/]+\.(?:py|cl\.j2|md)", f"{quirk.remedy} {quirk.source}"):
            assert (ROOT / path).exists() or (ROOT / "tflgpu" / path).exists(), f"{quirk.name} names {path}"
    assert len({quirk.name for quirk in QUIRKS}) == len(QUIRKS)
