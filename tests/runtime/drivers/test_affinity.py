"""On two cores PoCL keeps each of its threads to one: seen in processes of their own, for it looks only once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tflgpu
from tests.quick import RUNTIMES
from tflgpu.runtime.opencl.driver_files import POCL_AFFINITY, TWO_CORES

ROOT = Path(__file__).parents[3]

# The cores of those threads that are kept to one, and the variable as the process has it afterwards.
KEPT = f"""
import os, sys
if len(sys.argv) > 1:
    os.sched_setaffinity(0, {{int(sys.argv[1])}})
own = os.sched_getaffinity(0)
import tflgpu
tflgpu.devices()
kept = [os.sched_getaffinity(int(thread)) for thread in os.listdir("/proc/self/task")]
print(sorted(min(cores) for cores in kept if len(cores) == 1 and cores != own), os.environ.get({POCL_AFFINITY!r}))
"""


def kept(*arguments: str, **variables: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != POCL_AFFINITY}
    environment = inherited | {"PYTHONPATH": str(ROOT)} | variables
    command = [sys.executable, "-c", KEPT, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def pocl() -> None:
    if not any(device.platform == RUNTIMES[1] for device in tflgpu.devices()):
        pytest.skip(f"{RUNTIMES[1]} is not installed")


def test_threads_are_kept_to_cores_where_there_are_two() -> None:
    all_two = os.cpu_count() == 2 and os.sched_getaffinity(0) == TWO_CORES
    assert kept() == ("[0, 1] None" if all_two else "[] None")


def test_a_user_has_chosen() -> None:
    assert kept(POCL_AFFINITY="0") == "[] 0"


def test_a_process_keeps_to_the_cores_that_it_was_given() -> None:
    assert kept(str(min(os.sched_getaffinity(0)))) == "[] None"
