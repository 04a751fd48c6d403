"""The tier without devices is what CONTRIBUTING.md says, and no test of it uses one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tflgpu
from tests.tiers import NO_DRIVERS, ROOT, WITHOUT_DEVICE

PATHS = [ROOT / name for name in WITHOUT_DEVICE]
COMMAND = 'pytest -m "not device"'


def modules(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("test_*.py"))


def test_every_listed_module_is_there_and_listed_once() -> None:
    found = [module for path in PATHS for module in modules(path)]
    assert all(modules(path) for path in PATHS), "a name of the list is no module, and no folder of modules"
    assert len(found) == len(set(found)), "a module is listed beside its folder"
    assert list(WITHOUT_DEVICE) == sorted(WITHOUT_DEVICE)


def test_the_tier_is_documented() -> None:
    for page in ("CONTRIBUTING.md", "README.md"):
        assert COMMAND in (ROOT / page).read_text()


def test_no_test_marks_a_device_where_all_tests_have_the_marker() -> None:
    """A mark by hand says something only in the listed modules."""
    listed = {module for path in PATHS for module in modules(path)}
    marked = {path for path in (ROOT / "tests").rglob("test_*.py") if "\n@pytest.mark.device\n" in path.read_text()}
    assert marked <= listed


def test_a_test_without_the_marker_finds_no_device() -> None:
    with pytest.raises(pytest.fail.Exception, match="this test uses OpenCL"):
        tflgpu.devices()


def test_processes_of_such_a_test_find_no_device() -> None:
    assert os.environ.items() >= NO_DRIVERS.items()
    program = "import tflgpu; print(tflgpu.devices())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "()\n"
