"""Whatever call of the driver fails, callers get an error of tflgpu that names the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import tflgpu
from tests.quick import RUNTIMES
from tests.support.limited_devices import fails
from tests.support.models import Builder
from tflgpu import BuildError, CacheFiles, DeviceError, Execution, Options
from tflgpu.runtime.opencl import devices

INTEL = RUNTIMES[0]
CALLS = {
    "a context": (cl, "Context"),
    "a queue": (cl, "CommandQueue"),
    "waiting for a queue": (cl.CommandQueue, "finish"),
    "building": (cl._cl._Program, "_build"),
    "binaries": (cl.Program, "get_info"),
    "a kernel": (cl, "Kernel"),
    "the groups of a kernel": (cl.Kernel, "get_work_group_info"),
    "an argument": (cl.Kernel, "set_arg"),
    "a buffer": (cl, "Buffer"),
    "a launch": (cl, "enqueue_nd_range_kernel"),
    "a copy": (cl, "enqueue_copy"),
    "a fill": (cl, "enqueue_fill"),
    "mapping": (cl, "enqueue_map_buffer"),
}
SOME = ("a kernel", "an argument", "a buffer", "a launch")
X = np.ones((1, 4, 4, 8), np.float32)


@contextmanager
def failing(owner: Any, name: str, after: int) -> Iterator[list[str]]:
    """While this is open, a function of pyopencl fails after so many calls. Gives a list of those that failed."""
    real, calls, failed = getattr(owner, name), iter(range(after)), list[str]()

    def count() -> None:
        if next(calls, None) is None:
            failed.append(name)
            raise fails(name, "OUT_OF_RESOURCES", cl.RuntimeError)

    def may_fail(*arguments: Any, **named: Any) -> Any:
        count()
        return real(*arguments, **named)

    def initialize(self: Any, *arguments: Any, **named: Any) -> None:
        count()
        real.__init__(self, *arguments, **named)

    # A class is replaced by a class, because pyopencl and tflgpu ask whether something is an instance of it.
    replacement = type(name, (real,), {"__init__": initialize}) if isinstance(real, type) else may_fail
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, replacement)
        yield failed


def layer() -> bytes:
    """A convolution, whose kernel has several tiles to choose from."""
    b = Builder()
    x, weights = b.input(X.shape), b.constant(np.ones((8, 1, 1, 8), np.float32))
    y = b.add("CONV_2D", [x, weights, b.constant(np.zeros(8, np.float32))], X.shape, stride_h=1, stride_w=1)
    return b.finish([y])


def use(options: Options) -> None:
    """Everything that a caller does with a model."""
    with tflgpu.compile(layer(), options) as model:
        model.run(X)
        on_device: list[Any] = [X]
        with suppress(cl.Error):  # this one is the caller's
            on_device = [cl.Buffer(model.queue.context, cl.mem_flags.READ_WRITE, X.nbytes)]
        model.run(on_device)
        model.pinned_array(model.inputs[0].name)
        model.reset_state()
        if options.execution.executor == "launch":  # the other has no clock on a CPU
            model.profile(X, 1)


@pytest.mark.quick(when=lambda call, executor: executor == "launch" and call in SOME[-2:])
@pytest.mark.filterwarnings("ignore::tflgpu.CacheWarning")
@pytest.mark.parametrize(("call", "executor"), [*product(CALLS, ["launch"]), *product(SOME, ["persistent"])])
def test_no_error_of_pyopencl_leaves(call: str, executor: Any, tmp_path: Path) -> None:
    """The call fails once after another: in a warm start, and in a cold one that measures."""
    warm = Options(
        device=INTEL,
        execution=Execution(executor=executor, kernels="gpu"),
        precision="fp32",
        cache_files=CacheFiles(path=tmp_path),
    )
    compiled_for = tflgpu.compile(layer(), warm).device.name
    happened = False
    for after in (0, 4):
        execution = replace(warm.execution, tuning="fast" if after else "none")
        cold = replace(warm, execution=execution, cache_files=CacheFiles(path=tmp_path / str(after)))
        for options in (replace(warm, cache="read"), cold):
            with failing(*CALLS[call], after) as failed:
                try:
                    use(options)
                except (DeviceError, BuildError) as error:
                    assert compiled_for in str(error), error
            happened |= bool(failed)
    assert happened, "this call is made nowhere"


def test_a_device_that_cannot_describe_itself_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(platform: cl.Platform, handle: cl.Device) -> devices.Device:
        if platform.name == INTEL:
            raise fails("clGetDeviceInfo", "OUT_OF_RESOURCES", cl.RuntimeError)
        return known(platform, handle)

    before, known = tflgpu.devices(), devices._describe
    monkeypatch.setattr(devices, "_describe", describe)
    devices._devices.cache_clear()
    try:
        others = [device.platform for device in before if device.platform != INTEL]
        assert [device.platform for device in tflgpu.devices()] == others
        assert [device.index for device in tflgpu.devices()] == list(range(len(others)))
    finally:
        devices._devices.cache_clear()
