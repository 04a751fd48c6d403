"""Libraries that pass for drivers, and a machine that is a folder."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_driver.c")


@pytest.fixture
def fake_driver(tmp_path: Path) -> Callable[..., Path]:
    """Makes a library of a name; with flags of ``fake_driver.c``, one that fails."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")

    def make(name: str, *flags: str) -> Path:
        library = tmp_path / "libraries" / name
        library.parent.mkdir(exist_ok=True)
        options = ["-shared", "-fPIC", *(f"-D{flag}" for flag in flags)]
        subprocess.run([compiler, *options, "-o", library, SOURCE], check=True, capture_output=True, timeout=60)
        return library

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of the machine whose root is the temporary folder."""

    def write(path: str, text: str = "") -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return write
