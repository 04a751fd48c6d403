"""Drivers' quirks, on devices that are none: what they change, and that the table is complete."""

from __future__ import annotations

import itertools
import re
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import tflgpu
from tests.support.models import Builder
from tflgpu.runtime.opencl import clock, devices, program, session
from tflgpu.runtime.opencl.description import language_of_atomics
from tflgpu.runtime.opencl.quirks import (
    INTEL,
    NVIDIA,
    OCLGRIND,
    POCL,
    QUIRKS,
    RUSTICL,
    Driver,
    compiler_options,
    prelude,
    quirks_of,
)
from tflgpu.target import Limits

ROOT = Path(__file__).parents[2]

ZEN5 = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic"
SKYLAKE = "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-skylake-avx512"
ARM = "OpenCL 3.0 PoCL HSTR: pthread-aarch64-unknown-linux-gnu-generic"


def device(
    platform: str,
    version: str = "OpenCL 3.0",
    kind: int = cl.device_type.CPU,
    units: int = 2,
    name: str = "",
    driver: str = "1.0",
) -> Any:
    return SimpleNamespace(
        platform=SimpleNamespace(name=platform, get_devices=list),
        name=name or f"a device of {platform}",
        version=version,
        driver_version=driver,
        type=kind,
        profile="FULL_PROFILE",
        single_fp_config=0,
        global_mem_size=1 << 30,
        max_compute_units=units,
        extensions="",
        opencl_c_version="OpenCL C 1.2",
        opencl_c_features=[],
    )


def order(monkeypatch: pytest.MonkeyPatch, *found: Any) -> list[str]:
    """The platforms of devices in the order in which ``tflgpu devices`` lists them."""
    for one in found:
        one.platform.get_devices = lambda one=one: [one]
    monkeypatch.setattr(cl, "get_platforms", lambda: [one.platform for one in found])
    monkeypatch.setattr(devices, "limits_of", lambda handle: Limits())
    return [d.platform for d in devices._devices.__wrapped__()]


def test_a_pocl_that_cannot_compile_comes_after_all_that_work(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator = device(OCLGRIND, kind=cl.device_type.CPU | cl.device_type.GPU)
    broken, working = device(POCL, ZEN5), device(POCL, SKYLAKE)
    gpu = device(NVIDIA, kind=cl.device_type.GPU)
    assert order(monkeypatch, broken, simulator, device(INTEL), gpu) == [NVIDIA, INTEL, OCLGRIND, POCL]
    assert order(monkeypatch, simulator, working, device(INTEL), gpu) == [NVIDIA, INTEL, POCL, OCLGRIND]
    assert order(monkeypatch, broken) == [POCL]


def test_no_type_of_device_means_a_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number and its name do."""
    simulator = device(OCLGRIND, kind=cl.device_type.CPU | cl.device_type.GPU)
    order(monkeypatch, device(INTEL), simulator)
    monkeypatch.setattr(devices, "_devices", devices._devices.__wrapped__)
    with pytest.raises(tflgpu.DeviceError, match="no OpenCL device matches 'gpu'"):
        devices.choose("gpu")
    assert devices.choose("cpu").platform == INTEL
    assert devices.choose("oclgrind").platform == devices.choose(1).platform == OCLGRIND


def network() -> bytes:
    builder = Builder()
    return builder.finish([builder.add("ABS", [builder.input((1, 8))], (1, 8))])


def llvmpipe(driver: str = "22.3.6") -> Any:
    return device(RUSTICL, units=64, name="llvmpipe (LLVM 15.0.6, 256 bits)", driver=driver)


def test_a_cpu_runtime_that_nobody_has_tried_comes_after_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = device("A new runtime", units=256)
    found = order(monkeypatch, llvmpipe(), unknown, device(POCL, SKYLAKE), device(INTEL))
    assert found == [INTEL, POCL, "A new runtime", RUSTICL]
    gpu = device("A new driver", kind=cl.device_type.GPU)
    assert order(monkeypatch, llvmpipe(), device(INTEL), gpu) == ["A new driver", INTEL, RUSTICL]


def test_llvmpipe_gets_the_kernels_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    order(monkeypatch, llvmpipe(), device(INTEL))
    families = [d.target(tflgpu.Options()).family for d in devices._devices.__wrapped__()]
    assert families == ["cpu", "gpu"]
    chosen = [
        d.target(tflgpu.Options(execution=tflgpu.Execution(kernels="cpu"))).family
        for d in devices._devices.__wrapped__()
    ]
    assert chosen == ["cpu", "cpu"]


@pytest.mark.parametrize(("version", "concerned"), [(ZEN5, True), (SKYLAKE, False), (ARM, False)])
def test_only_x86_has_no_cpu_named_generic(version: str, concerned: bool) -> None:
    names = [quirk.name for quirk in quirks_of(Driver(POCL, version, "3.0"))]
    assert ("unknown CPU" in names) == concerned


class Refused(cl.RuntimeError):
    """The error with which a driver's compiler refuses a program."""

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
    assert ('pip install "intel-opencl-rt' in caught.value.message) == advised
    assert caught.value.log == "error: unknown target CPU 'generic'"


def test_a_device_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise Refused

    order(monkeypatch, device(POCL, ZEN5))
    (broken,) = devices._devices.__wrapped__()
    monkeypatch.setattr(session.cl, "Context", refuse)
    with pytest.raises(tflgpu.DeviceError, match=r'failed while being opened.*pip install "intel-opencl-rt'):
        session.open_session(broken)


def test_division_is_rounded_where_that_is_an_option() -> None:
    driver = Driver(INTEL, "OpenCL 3.0", "1.0")
    assert compiler_options(driver) == ()
    rounding = replace(driver, can_round_division=True)
    assert compiler_options(rounding) == ("-cl-fp32-correctly-rounded-divide-sqrt",)


def test_functions_that_a_driver_lacks_are_computed_by_others(device_name: str) -> None:
    """OpenCL itself allows sin and cos 4 units in the last place; what fma is for is the error of a product."""
    text = prelude(Driver(RUSTICL, "OpenCL 3.1", "26.2.6-1"))
    kernel = "__kernel void apply(__global float4 *x, __global float4 *y) {{ *y = {}; }}"
    handle = next(d.handle for d in tflgpu.devices() if d.platform == device_name)
    context = cl.Context([handle])
    queue = cl.CommandQueue(context)
    given = np.array([1.0, -20.5, 3.1415927, 12345.678], np.float32)
    exact = given.astype(np.float64)
    third = np.float32(0.3)
    cases = {
        "sin(*x)": (np.sin(exact), 5e-7),
        "cos(*x)": (np.cos(exact), 5e-7),
        "fma(*x, (float4)(0.3f), -*x * 0.3f)": (exact * np.float64(third) - given * third, 1e-9),
    }
    for expression, (expected, tolerance) in cases.items():
        made = program.make_kernel(program.compile_program(context, text + kernel.format(expression)), "apply")
        x, y = (cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=given) for _ in range(2))
        made(queue, (1,), None, x, y)
        got = np.empty_like(given)
        cl.enqueue_copy(queue, got, y)
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)


def test_sixteen_halves_may_lie_at_any_multiple_of_8_bytes(device_name: str) -> None:
    text = "" if device_name == POCL else prelude(Driver(POCL, SKYLAKE, "3.0"))  # every program for PoCL has it
    text += "__kernel void apply(__global half *x, __global half *y) {"
    text += " for (int i = 0; i < 4; i++) vstore_half16(2 * vload_half16(0, x + 4 + 20 * i), 0, y + 4 + 20 * i); }"
    handle = next(d.handle for d in tflgpu.devices() if d.platform == device_name)
    context = cl.Context([handle])
    queue = cl.CommandQueue(context)
    given, got = np.arange(84).astype(np.float16), np.zeros(84, np.float16)
    x, y = (cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=a) for a in (given, got))
    program.make_kernel(program.compile_program(context, text), "apply")(queue, (1,), (1,), x, y)
    cl.enqueue_copy(queue, got, y)
    written = np.arange(84) % 20 >= 4
    assert (got == np.where(written, 2 * given, 0)).all()


def test_without_a_clock_of_the_device_the_hosts_counts(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tflgpu.compile(network(), tflgpu.Options(device=device_name, cache="off"))
    assert all(kernel.seconds > 0 for kernel in compiled.profile([np.ones((1, 8), np.float32)]).kernels)

    monkeypatch.setattr(clock, "_has_clock", lambda device: False)
    monkeypatch.setattr(clock, "perf_counter_ns", itertools.count(0, 1500).__next__)
    (kernel,) = compiled.profile([np.ones((1, 8), np.float32)]).kernels
    assert kernel.seconds == pytest.approx(1.5e-6)


def test_a_context_stays_where_the_last_one_takes_functions_along(
    device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_kept", {})
    found = next(d for d in tflgpu.devices() if d.platform == device_name)
    opened = [session.open_session(found) for _ in range(2)]
    contexts = [weakref.ref(each.context) for each in opened]
    opened.clear()
    assert [context() is not None for context in contexts] == [device_name == POCL, False]


def test_a_remedy_elsewhere_is_there() -> None:
    """Files that the records name."""
    for quirk in QUIRKS:
        for path in re.findall(r"[\w/]+\.(?:py|cl\.j2|md)", f"{quirk.remedy} {quirk.source}"):
            assert (ROOT / path).exists() or (ROOT / "tflgpu" / path).exists(), f"{quirk.name} names {path}"
    assert len({quirk.name for quirk in QUIRKS}) == len(QUIRKS)


@pytest.mark.parametrize(("version", "expected"), [("1.2", 0), ("2.0", 2)])
def test_before_version_3_a_device_has_atomics_by_its_version(version: str, expected: int) -> None:
    class Old(SimpleNamespace):
        @property
        def opencl_c_features(self) -> list[Any]:
            raise cl.LogicError("clGetDeviceInfo failed: INVALID_VALUE")

    assert language_of_atomics(Old(opencl_c_version=f"OpenCL C {version}")) == expected  # type: ignore[arg-type]
