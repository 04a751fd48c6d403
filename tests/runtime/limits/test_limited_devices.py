"""Models on devices that hold little, simulated by a layer that refuses what exceeds their limits."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import tflgpu
from tests.conftest import missing
from tests.ops.axes import FAMILIES, PRECISIONS
from tests.quick import RUNTIMES
from tests.support.fixed_cases import fixed_cases
from tests.support.limited_devices import SIMULATIONS, Simulation, limited
from tests.support.models import Builder
from tests.support.running import run_checked
from tests.support.side_by_side import run_together
from tflgpu import CacheFiles, DeviceError, Execution, Options
from tflgpu.measure.trace import trace
from tflgpu.runtime.opencl.quirks import OCLGRIND, POCL

INTEL = RUNTIMES[0]
ROOT = Path(__file__).parents[3]
SMALL_BUFFERS = SIMULATIONS["buffers of 64 MB"]


# Networks with kernels that share work, or memory, among the work-items of a group, or fill registers.
SHARING = (
    "fully_connected",
    "softmaxes",
    "recurrences",
    "convolution_of_one_pixel",
    "wide_convolution",
    "depthwise_with_multiplier",
    "excitation",
    "means",
    "arg_extremes",
)


IN_THEIR_OWN_WORDS = """
import sys, tflgpu
from tests.ops.tolerance import check
from tests.support.fixed_cases import fixed_cases

options = tflgpu.Options(
    device=sys.argv[1], precision="fp32", cache="off", execution=tflgpu.Execution(kernels="gpu")
)
for name in ("fully_connected", "softmaxes"):
    case = fixed_cases()[name]
    model = tflgpu.compile(case.model, tflgpu.Options(device=sys.argv[1], kernels="gpu", precision="fp32", cache="off"))
    case.check(model.run(case.inputs).values())
    print(model.device.limits.work_group_size, model.device.limits.local_bytes)
"""


@pytest.mark.quick(when=lambda platform: platform == OCLGRIND)
@pytest.mark.parametrize(
    ("platform", "variables"),
    [
        (OCLGRIND, {"OCLGRIND_MAX_WGSIZE": "64", "OCLGRIND_LOCAL_MEM_SIZE": "16384"}),
        (POCL, {"POCL_MAX_WORK_GROUP_SIZE": "64"}),
    ],
)
def test_drivers_that_simulate_limits_themselves(platform: str, variables: dict[str, str]) -> None:
    if all(device.platform != platform for device in tflgpu.devices()):
        missing(platform)
    done = subprocess.run(
        [sys.executable, "-c", IN_THEIR_OWN_WORDS, platform],
        env=os.environ | variables | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("64 ")


@pytest.mark.quick(when=lambda device: device in ("groups of 1", "no local memory"))
@pytest.mark.parametrize("device", SIMULATIONS)
def test_kernels_run_within_the_limits(device: str) -> None:
    """Each case by one family in fp32 and by the other in fp16. ``tests/drivers/whole_table.py`` has all cases."""
    cases = [fixed_cases()[name] for name in SHARING]
    turn = [*SIMULATIONS].index(device) % 2
    with limited(INTEL, SIMULATIONS[device]):
        for family, precision in product(FAMILIES, PRECISIONS):
            first = (turn + FAMILIES.index(family) + PRECISIONS.index(precision)) % 2
            run_together(cases[first::2], kernels=family, precision=precision, fallback="forbid")


def two_large_layers(side: int = 3000) -> bytes:
    """Two fully connected layers with 36 MB of weights each: they move elements by one and by two places."""
    b = Builder()
    x = b.input((1, side))
    for places in (1, 2):
        weights = b.constant(np.roll(np.eye(side, dtype=np.float32), places, 0))
        x = b.add("FULLY_CONNECTED", [x, weights], (1, side))
    return b.finish([x])


@pytest.mark.quick(when=lambda kernels: kernels == "gpu")
@pytest.mark.parametrize("kernels", ["cpu", "gpu"])
def test_weights_are_shared_out_over_buffers(kernels: str) -> None:
    with limited(INTEL, SMALL_BUFFERS):
        model = tflgpu.compile(
            two_large_layers(), Options(execution=Execution(kernels=kernels), precision="fp32", cache="off")
        )
        x = np.arange(3000, dtype=np.float32)[None]
        (y,) = model.run(x).values()
    np.testing.assert_array_equal(y, np.roll(x, 3))


def images(count: int, side: int) -> bytes:
    """A chain of additions that are all needed at the end, so that as many images live at once."""
    b = Builder()
    shape = (1, side, side, 4)
    first = b.input(shape)
    living = []
    for number in range(count):
        y = b.add("CUMSUM", [first, b.ints(number % 3 + 1)], shape)
        living.append(y)
    total = living[0]
    for y in living[1:]:
        total = b.add("MAXIMUM", [total, y], shape)
    return b.finish([total])


def test_activations_are_shared_out_over_buffers() -> None:
    """Four images of 25 MB live at once."""
    x = np.ones((1, 1250, 1250, 4), np.float32)
    with limited(INTEL, SMALL_BUFFERS):
        model = tflgpu.compile(images(4, 1250), Options(precision="fp32", cache="off"))
        assert (model.report.arena_bytes or 0) > 64 << 20
        (y,) = model.run(x).values()
    np.testing.assert_array_equal(y, np.maximum(np.maximum(x.cumsum(1), x.cumsum(2)), x.cumsum(3)))


def test_a_tensor_larger_than_any_buffer_is_refused_with_the_number() -> None:
    with limited(INTEL, SMALL_BUFFERS), pytest.raises(DeviceError, match="no buffers of more than 67108864 bytes"):
        tflgpu.compile(images(1, 2100), Options(precision="fp32", cache="off"))


def groups_of(model: tflgpu.CompiledModel) -> set[int]:
    return {kernel.local_size for kernel in model.profile(case_inputs(model), 1).kernels}


def case_inputs(model: tflgpu.CompiledModel) -> list[NDArray[np.float32]]:
    return [np.ones(info.shape, np.float32) for info in model.inputs]


@pytest.mark.quick(when=lambda tuning: tuning == "none")
@pytest.mark.parametrize("tuning", ["none", "fast"])
def test_a_kernel_that_is_built_for_smaller_groups_is_planned_anew(tuning: str, tmp_path: Path) -> None:
    """Alone, and once: a warm start has the new plan, though its driver is not asked."""
    case = fixed_cases()["wide_convolution"]
    options = Options(
        execution=Execution(kernels="gpu", tuning=tuning), precision="fp32", cache_files=CacheFiles(path=tmp_path)
    )
    with limited(INTEL, Simulation(groups={"gpu_convolution": 16})):
        model = tflgpu.compile(case.model, options)
        assert groups_of(model) == {16, 128}
        for again in (model, tflgpu.compile(case.model, replace(options, cache="require"))):
            case.check(again.run(case.inputs).values())
        assert groups_of(again) == {16, 128}


@pytest.mark.quick(when=lambda what: what == "trace")
@pytest.mark.parametrize("what", ["trace", "storage"])
def test_everything_that_plans_keeps_to_smaller_groups(what: str) -> None:
    """The results of all kernels, and the search for the storage of tensors."""
    case = fixed_cases()["wide_convolution"]
    options = Options(execution=Execution(kernels="gpu"), precision="fp32", cache="off")
    with limited(INTEL, Simulation(groups={"gpu_convolution": 16})):
        if what == "trace":
            assert trace(case.model, case.inputs, options)
            return
        mixed = replace(options, precision="auto", numerics=replace(options.numerics, tolerance=1e-2))
        (got,) = tflgpu.compile(case.model, mixed).run(case.inputs).values()
    assert np.abs(got - case.expected[0]).max() <= 2e-2 * np.ptp(case.expected[0])


def test_nodes_are_not_fused_where_a_fused_one_has_smaller_groups() -> None:
    case = fixed_cases()["excitation"]
    with limited(INTEL, Simulation(groups={"gpu_excite": 4})):
        model = tflgpu.compile(case.model, Options(execution=Execution(kernels="gpu"), precision="fp32", cache="off"))
    assert "gpu_excite" not in model.source
    case.check(model.run(case.inputs).values())


@pytest.mark.quick(when=lambda smaller: smaller.groups)
@pytest.mark.parametrize("smaller", [Simulation(groups={"persistent": 64}), SIMULATIONS["8 KiB of local memory"]])
def test_a_persistent_kernel_keeps_to_the_limits(smaller: Simulation) -> None:
    case = fixed_cases()["recurrences"]
    with limited(INTEL, smaller):
        run_checked(case, kernels="gpu", executor="persistent")


def test_a_model_that_is_too_large_for_a_persistent_kernel_says_so() -> None:
    options = Options(execution=Execution(kernels="gpu", executor="persistent"), precision="fp32", cache="off")
    with limited(INTEL, SMALL_BUFFERS), pytest.warns(tflgpu.DeviceWarning, match="allows 67,108,864 bytes in one"):
        model = tflgpu.compile(images(4, 1250), options)
    assert model.executor == "launch"


@pytest.mark.parametrize("device", ["no local memory", "an embedded profile"])
def test_a_persistent_kernel_is_refused_where_it_cannot_wait(device: str) -> None:
    options = Options(execution=Execution(kernels="gpu", executor="persistent"), cache="off")
    with limited(INTEL, SIMULATIONS[device]), pytest.raises(DeviceError, match="executor 'persistent' needs"):
        tflgpu.compile(fixed_cases()["means"].model, options)


def test_a_language_that_is_too_old_is_refused() -> None:
    with (
        limited(INTEL, Simulation({"opencl_c": (1, 1)})),
        pytest.raises(DeviceError, match=r"has OpenCL C 1\.1; 1\.2 is needed"),
    ):
        tflgpu.compile(fixed_cases()["means"].model)


def test_constant_indices_need_no_int64() -> None:
    """The indices are a list of rows, or a list of places."""
    numbers = np.arange(24, dtype=np.float32).reshape(4, 6)
    rows, places = np.array([3, 0, 2], np.int64), np.array([[1, 5], [3, 0]], np.int64)
    builder = Builder()
    x = builder.input((4, 6))
    taken = builder.add("GATHER", [x, builder.constant(rows)], (3, 6))
    picked = builder.add("GATHER_ND", [x, builder.constant(places)], (2,))
    with limited(INTEL, SIMULATIONS["an embedded profile"]) as device:
        options = Options(device=device.index, precision="fp32", fallback="forbid", cache="off")
        got = tflgpu.compile(builder.finish([taken, picked]), options).run([numbers])
    for array, expected in zip(got.values(), (numbers[rows], numbers[tuple(places.T)]), strict=True):
        np.testing.assert_array_equal(array, expected)
