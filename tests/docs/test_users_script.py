"""The types, and ``import tflgpu``, in the view of a user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tflgpu
from tests.conftest import missing

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "users_script.py"

# The libraries of a process before and after it looks for devices.
LIBRARIES = """
import tflgpu

def libraries():
    return {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}

before = libraries()
tflgpu.devices()
print(*sorted(libraries() - before), sep="\\n")
"""


def python(*arguments: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.full(why="mypy reads tflgpu and numpy, which takes ten seconds")
def test_strict_types(tmp_path: Path) -> None:
    """In a project of somebody else's: faults inside of tflgpu are not reported there, and its settings do not hold."""
    try:
        import mypy  # noqa: F401
    except ImportError:
        missing("mypy")
    arguments = ("--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={tmp_path}", str(SCRIPT))
    python("-m", "mypy", *arguments, MYPYPATH=str(ROOT))


@pytest.mark.full(why="it compiles a model four times")
def test_the_script_runs() -> None:
    if not tflgpu.devices():
        missing("an OpenCL device")
    assert python("-W", "error", str(SCRIPT), str(ROOT / "examples" / "digits")).startswith(tflgpu.__version__)


def test_the_script_has_every_public_name() -> None:
    script = SCRIPT.read_text(encoding="utf-8")
    assert [name for name in tflgpu.__all__ if f"tflgpu.{name}" not in script] == []


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which libraries a process has")
def test_importing_opens_no_driver() -> None:
    """Drivers are loaded when devices are looked for."""
    if not tflgpu.devices():
        missing("an OpenCL device")
    loaded = python("-W", "error", "-c", LIBRARIES)
    drivers = ("intelocl", "pocl", "nvidia-opencl", "oclgrind")
    assert any(driver in library for library in loaded.splitlines() for driver in drivers), loaded
