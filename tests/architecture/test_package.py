"""The wheel: built, installed elsewhere, and able to run a model from what it carries."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

READS_DIGITS = """
from pathlib import Path
import numpy as np
import tflgpu

package = Path(tflgpu.__file__).parent
assert package.is_relative_to({prefix!r}), package
digits = package / "examples" / "digits"
held_out = np.load(digits / "held_out.npz")
with tflgpu.compile(digits / "digits.tflite") as model:
    image = held_out["images"][:1, :, :, None].astype(np.float32) / 16
    (scores,) = model.run(image).values()
assert scores.argmax() == held_out["labels"][0]
"""


def python(*arguments: str | Path, cwd: Path, executable: str | Path = sys.executable) -> None:
    done = subprocess.run([executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    python("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("tflgpu-*.whl")
    return built


@pytest.mark.full("it builds a wheel")
def test_the_wheel_carries_what_is_not_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = ("templates", "cache_format")
    expected = {
        f"tflgpu/{p.relative_to(ROOT)}" for folder in folders for p in (ROOT / folder).rglob("*") if p.is_file()
    }
    expected |= {"tflgpu/py.typed", "tflgpu/examples/digits/digits.tflite", "tflgpu/examples/digits/held_out.npz"}
    assert expected - names == set()


@pytest.mark.full("it builds a wheel")
def test_the_wheel_carries_no_tests(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tflgpu"}


@pytest.mark.device
@pytest.mark.full("it builds a wheel")
def test_an_installed_wheel_runs_a_model(wheel: Path, tmp_path: Path) -> None:
    """In a new environment that borrows the libraries of this one; its own package comes first."""
    prefix = tmp_path / "environment"
    venv.create(prefix, symlinks=True)
    own = sysconfig.get_path("purelib", vars={"base": str(prefix)})
    Path(own, "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    inner = prefix / "bin" / "python"
    python("-m", "pip", "--python", inner, "install", "--quiet", "--no-deps", wheel, cwd=tmp_path)
    python("-E", "-c", READS_DIGITS.format(prefix=str(prefix)), cwd=tmp_path, executable=inner)
