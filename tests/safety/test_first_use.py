"""First use from any thread, in any environment, and what is left of it after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

import tflgpu
from tests.quick import on_first_runtime
from tests.safety.first_use import faults
from tests.safety.models import scaled
from tflgpu.cli.own_processes import in_own_process
from tflgpu.runtime.opencl import devices, driver_files

X = np.ones((1, 2, 2, 4), np.float32)

ROOT = Path(__file__).parents[2]


def python(script: str, *arguments: object, cwd: Path = ROOT, **environment: str) -> str:
    """The output of a script in a process of its own, without the variables that name caches."""
    inherited = {n: v for n, v in os.environ.items() if n not in ("TFLGPU_CACHE_DIR", "XDG_CACHE_HOME", "HOME")}
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=cwd,
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_threads_that_are_first(tmp_path: Path) -> None:
    assert faults(tmp_path, 2, 6) == []


def test_devices_are_looked_for_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    looking = []

    def look() -> list[cl.Platform]:
        looking.append(os.environ.get(driver_files.VENDORS))
        time.sleep(0.05)
        return []

    monkeypatch.setattr(cl, "get_platforms", look)
    environment = dict(os.environ)
    devices._devices.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _: devices.devices(), range(4))) == [()] * 4
    finally:
        devices._devices.cache_clear()
    assert len(looking) == 1 and dict(os.environ) == environment


def test_compiling_leaves_warning_filters_alone(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while it lasts: they belong to the process, and other threads would see them or put them back."""
    before = list(warnings.filters)
    with monkeypatch.context() as patch:
        patch.setattr(warnings, "catch_warnings", lambda *_, **__: pytest.fail("the filters were changed"))
        model = tflgpu.compile(scaled(2.0), tflgpu.Options(device=device_name, cache="off"))
    assert warnings.filters == before
    np.testing.assert_array_equal(model.run(X)["y"], 2 * X)


HOMELESS = """
import os, pwd, sys, warnings
if "HOME" not in os.environ:
    def nobody(_): raise KeyError
    pwd.getpwuid = nobody
import numpy as np, tflgpu
model, device, cache = sys.argv[1:]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        compiled = tflgpu.compile(model, tflgpu.Options(device=device, cache=cache))
assert (compiled.run(np.ones((1, 2, 2, 4), np.float32))["y"] == 2).all()
print(*(f"{w.category.__name__}: {w.message}" for w in caught), sep="\\n")
"""


def warnings_without_home(folder: Path, device: str, **home: str) -> list[str]:
    """The warnings of a process that may not write to a home directory. Nothing must be written elsewhere, too."""
    (folder / "model.tflite").write_bytes(scaled(2.0))
    given = python(HOMELESS, "model.tflite", device, "readwrite", cwd=folder, **home).splitlines()
    assert [path.name for path in folder.iterdir()] == ["model.tflite"]
    return given


@pytest.mark.quick(when=on_first_runtime)
def test_a_home_that_cannot_be_written(device_name: str, tmp_path: Path) -> None:
    (warning,) = warnings_without_home(tmp_path, device_name, HOME="/dev/null/none")
    assert warning.startswith("CacheWarning: no directory of the cache can be written")


def test_a_user_without_a_home(tmp_path: Path) -> None:
    (warning,) = warnings_without_home(tmp_path, "auto")
    assert warning.startswith("CacheWarning: the cache would be below the home directory, and this user has none")


def test_without_a_cache_nothing_is_written_to_the_home(tmp_path: Path) -> None:
    home, model = tmp_path / "home", tmp_path / "model.tflite"
    home.mkdir()
    model.write_bytes(scaled(2.0))
    environment = {"HOME": str(home), "POCL_CACHE_DIR": str(tmp_path / "pocl")}
    assert python(HOMELESS, model, "auto", "off", **environment).strip() == ""
    assert list(home.iterdir()) == []


def test_a_user_of_pyopencl_can_make_kernels_afterwards(tmp_path: Path) -> None:
    script = """
import sys, pyopencl as cl, tflgpu
model = tflgpu.compile(sys.argv[1], tflgpu.Options(cache="off"))
program = cl.Program(model.queue.context, "kernel void f(global int *x) { *x = 1; }").build(cache_dir=False)
cl.Kernel(program, "f")
assert not cl._PYOPENCL_NO_CACHE
"""
    (tmp_path / "model.tflite").write_bytes(scaled(2.0))
    python(script, tmp_path / "model.tflite", HOME=str(tmp_path))


FORK = """
import os, signal, sys, threading
import numpy as np, tflgpu
x, options = np.ones((1, 2, 2, 4), np.float32), tflgpu.Options(device=sys.argv[2], cache="off")

def in_child(work):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        work()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0

def first_use():
    assert (tflgpu.compile(sys.argv[1], options).run(x)["y"] == 2).all()

def late_use():
    uses = (lambda: model.run(x), lambda: model.enqueue(x), lambda: model.profile(x), model.reset_state,
            lambda: model.pinned_array("x"), tflgpu.devices, lambda: tflgpu.compile(sys.argv[1], options),
            submission.wait, lambda: submission.done)
    for use in uses:
        try:
            use()
        except tflgpu.DeviceError as error:
            assert "spawn" in str(error)
        else:
            raise AssertionError("no DeviceError")
    model.close()
    with model:
        pass

in_child(first_use)
model = tflgpu.compile(sys.argv[1], options)
busy, free = threading.Event(), threading.Event()

def run_for_long():
    with model._runner._lock:
        busy.set()
        free.wait()

submission = model.enqueue(x)
threading.Thread(target=run_for_long).start()
busy.wait()
in_child(late_use)
free.set()
assert (model.run(x)["y"] == 2).all()
"""


@pytest.mark.quick(when=on_first_runtime)
def test_a_fork_before_use_may_use_it_and_one_after_is_told_not_to(device_name: str, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(scaled(2.0))
    python(FORK, tmp_path / "model.tflite", device_name, HOME=str(tmp_path))


def test_a_model_goes_to_a_process_that_is_spawned() -> None:
    model = tflgpu.compile(scaled(2.0), tflgpu.Options(precision="fp32"))
    np.testing.assert_array_equal(in_own_process(run, model).value, 2 * X)


def run(model: tflgpu.CompiledModel) -> np.ndarray:
    return model.run(X)["y"]


def test_a_package_that_fails_to_import_hides_no_operator_from_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from tflgpu import plugins

    class Registry(dict[str, int]):
        def clear(self) -> None:
            pytest.fail("the registry was empty for a moment")

    registry = Registry(ADD=1)

    class Broken:
        dist = None

        def load(self) -> None:
            registry.update(ADD=2, OWN=3)
            raise ImportError

    monkeypatch.setattr(plugins, "_failures", [])
    with pytest.warns(tflgpu.PluginWarning):
        plugins._load(Broken(), registry)  # type: ignore[arg-type]
    assert registry == {"ADD": 1}
