"""scripts/new_operator.py in a copy of the checkout: what it writes is in order, and its row says what to do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("tflgpu", "templates", "tests", "benchmarks", "scripts", "pyproject.toml")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the script and the tools look at."""
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "results"))
        else:
            shutil.copy(source, target)
    return tmp_path


def run(checkout: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A Python command in the checkout, whose modules it imports."""
    settings = os.environ | {"PYTHONPATH": str(checkout)}
    return subprocess.run(
        [sys.executable, *command], cwd=checkout, env=settings, capture_output=True, text=True, check=False
    )


def new_operator(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(checkout, "scripts/new_operator.py", *arguments)


def changed(checkout: Path) -> list[str]:
    files = [p for name in COPIED for p in (checkout / name).rglob("*.py") if "__pycache__" not in p.parts]
    return sorted(
        str(p.relative_to(checkout)) for p in files if p.read_bytes() != (ROOT / p.relative_to(checkout)).read_bytes()
    )


@pytest.mark.device
@pytest.mark.full("it starts mypy and pytest")
def test_three_files_that_say_what_is_to_be_done(checkout: Path) -> None:
    """One operator of TensorFlow's kind and a custom one, whose family has rows of another name."""
    first = new_operator(checkout, "HARD_SIGMOID", "--family", "elementwise")
    assert first.returncode == 0, first.stderr
    files = changed(checkout)
    assert files == [
        "tests/ops/reference.py",
        "tests/ops/rows/elementwise.py",
        "tflgpu/ops/arithmetic/elementwise.py",
    ]
    second = new_operator(
        checkout, "SoftThreshold", "--family", "matmul", "--rows", "matrices", "--reference", "windows", "--inputs", "2"
    )
    assert second.returncode == 0, second.stderr
    files = sorted(
        {
            *files,
            *(f"tests/ops/{name}.py" for name in ("windows", "rows/matrices")),
            "tflgpu/ops/arithmetic/matmul.py",
        }
    )
    assert changed(checkout) == files
    if importlib.util.find_spec("ruff"):
        for check in (("check",), ("format", "--check")):
            found = run(checkout, "-m", "ruff", *check, *files)
            assert found.returncode == 0, found.stdout
    if importlib.util.find_spec("mypy"):
        found = run(checkout, "-m", "mypy", "--follow-imports=silent", *(f for f in files if f.startswith("tflgpu")))
        assert found.returncode == 0, found.stdout
    names = " or ".join(done.stdout.split()[-1] for done in (first, second))
    tests = run(checkout, "-m", "pytest", "-n0", "tests/ops/test_ops.py", "-k", f"({names}) and alone_and_fused")
    assert tests.returncode == 1, tests.stdout
    for code in ("HARD_SIGMOID", "SoftThreshold"):
        assert f"NotImplementedError: TODO: compute {code}" in tests.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("ADD", "--family", "elementwise"), "declared already"),
        (("Relu", "--family", "elementwise"), "has a relu already"),
        (("SELU", "--family", "none"), "has no module 'none'"),
        (("HARD-SIGMOID", "--family", "elementwise"), "no name for a function"),
    ],
)
def test_refusals_change_nothing(arguments: tuple[str, ...], reason: str, checkout: Path) -> None:
    done = new_operator(checkout, *arguments)
    assert done.returncode == 1 and reason in done.stderr
    assert changed(checkout) == []
