"""``Options.threads``: sub-devices of CPUs, plans for their number of cores, and the drop-ins' ``num_threads``."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

import tflgpu
from tests.runtime.claiming.executors import X, branches
from tests.support.limited_devices import let_devices_be
from tflgpu.compiled_model import CpuOptions
from tflgpu.compiled_model import Options as LitertOptions
from tflgpu.compiled_model.litert_options import chosen_options
from tflgpu.interpreter import Interpreter
from tflgpu.runtime.executors.resident import LaunchedKernel
from tflgpu.runtime.opencl import devices

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"


@pytest.fixture
def whole(device_name: str) -> tflgpu.Device:
    """A device of several cores."""
    device = devices.choose(device_name)
    if device.compute_units < 2:
        pytest.skip("one core cannot be partitioned")
    return device


def test_a_model_runs_on_a_part_of_the_cores(
    whole: tflgpu.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is planned for one core, has one work-group, and is another entry of the cache."""
    groups: list[int] = []
    monkeypatch.setattr(LaunchedKernel, "__post_init__", count_groups(groups))
    options = tflgpu.Options(device=whole.index, precision="fp32", cache_files=tflgpu.CacheFiles(path=tmp_path))
    on_all = tflgpu.compile(branches(), options)
    assert max(groups) > 1
    groups.clear()
    known = replace(options, threads=1, cache="require")
    with pytest.raises(tflgpu.CacheMissError):
        tflgpu.compile(branches(), known)
    on_one = tflgpu.compile(branches(), replace(options, threads=1))
    assert groups == [1] * len(groups) and groups
    assert on_one.queue.device == on_one.device.handle
    units = on_one.device.handle.max_compute_units, on_one.device.compute_units, on_one._opener.target.compute_units
    assert units == (1, 1, 1)
    np.testing.assert_allclose(on_one.run([X])["y"], on_all.run([X])["y"], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(tflgpu.compile(branches(), known).run([X])["y"], on_one.run([X])["y"])


def count_groups(found: list[int]) -> object:
    made = LaunchedKernel.__post_init__

    def wrapper(self: LaunchedKernel) -> None:
        found.append(self.groups)
        made(self)

    return wrapper


def test_models_get_different_cores_in_turn(whole: tflgpu.Device) -> None:
    first, second = (devices.choose(whole.index, 1) for _ in range(2))
    assert first == second != whole and first.handle != second.handle
    assert devices.root_device(first.handle) == devices.root_device(second.handle) == whole.handle
    turns = {devices.choose(whole.index, 1).handle for _ in range(2 * whole.compute_units)}
    assert len(turns) == whole.compute_units


def test_parts_of_the_cores_are_disjoint() -> None:
    class EightCores:
        max_compute_units = 8
        create_sub_devices = tuple

    numbers = list(islice(devices._sub_devices.__wrapped__(EightCores, 3), 4))  # type: ignore[arg-type]
    assert numbers == [cl.device_partition_property.BY_COUNTS, 3, 3, 0]


def test_a_second_model_runs_on_the_cores_of_the_first(whole: tflgpu.Device) -> None:
    first = tflgpu.compile(DIGITS, tflgpu.Options(device=whole.index, threads=1))
    second = tflgpu.compile(DIGITS, queue=first.queue)
    assert second.device == first.device and second.device.handle == first.device.handle


def test_more_cores_than_there_are_is_all_of_them(whole: tflgpu.Device) -> None:
    for threads in (None, whole.compute_units, 1000):
        assert devices.choose(whole.index, threads) is whole


def test_a_gpu_has_no_cores_to_count(whole: tflgpu.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = replace(whole, type="gpu")
    let_devices_be(monkeypatch, gpu)
    assert devices.choose("gpu", 1) is gpu


def test_a_device_that_cannot_be_partitioned_says_so(whole: tflgpu.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver refuses as many cores as this one says that it has."""
    greater = replace(whole, compute_units=1 << 20)
    let_devices_be(monkeypatch, greater)
    with pytest.warns(tflgpu.DeviceWarning, match=r"cannot be partitioned: all of its 1048576 cores are used, and not"):
        assert devices.choose(0 if whole.index == 0 else "cpu", 1 << 19) is greater


@pytest.mark.parametrize("threads", [0, -1, 1.5, "two"])
def test_wrong_numbers_are_refused(threads: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"Options\.threads is"):
        tflgpu.Options(threads=threads)  # type: ignore[arg-type]


def test_the_interpreter_takes_its_number_of_threads(whole: tflgpu.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    monkeypatch.setattr("tflgpu.opening.opener.choose", lambda request, threads: asked.append(threads) or whole)
    for own, given in ((None, None), (None, 1), (2, 1)):
        Interpreter(str(DIGITS), num_threads=given, options=tflgpu.Options(threads=own)).allocate_tensors()
    assert list(dict.fromkeys(asked)) == [None, 1, 2]


@pytest.mark.parametrize(("given", "threads"), [(0, None), (-1, None), (1, 1), (1 << 40, (1 << 31) - 1)])
def test_the_compiled_model_takes_its_number_of_threads(given: int, threads: int | None) -> None:
    assert chosen_options(LitertOptions(cpu_options=CpuOptions(num_threads=given)), None).threads == threads
