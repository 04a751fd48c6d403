"""Drivers without an .icd file, from end to end: found, tried, used, and listed with the place where they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

LISTS = """
import json, os, sys, tflgpu
from tflgpu.runtime.opencl.driver_files import source_of, tried_libraries
before = dict(os.environ)
devices = [(d.name, d.type, source_of(d.handle.platform)) for d in tflgpu.devices()]
assert dict(os.environ) == before
print(json.dumps([devices, [(library, answer.fault) for library, answer in tried_libraries()]]))
"""


def python(*arguments: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name not in ("OCL_ICD_VENDORS", "TFLGPU_DEVICE")}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_driver_is_found_and_one_that_crashes_harms_nobody(fake_driver: Callable[..., Path]) -> None:
    board, intel = fake_driver("libmali.so.1"), fake_driver("libigdrcl.so", "CRASHES")
    listed, tried = json.loads(python("-c", LISTS, LD_LIBRARY_PATH=str(board.parent)))
    assert listed[0] == ["Fake Mali-G610", "gpu", [str(board), "no .icd file"]]
    assert [str(board), ""] in tried
    assert [str(intel), "crashes when it is loaded (SIGABRT)"] in tried
    wheels = [name for _, _, (_, name) in listed[1:]]
    assert set(wheels) <= {"wheel"} | {name for name in wheels if name.endswith(".icd")}


def test_the_next_file_is_tried_where_one_fails(fake_driver: Callable[..., Path]) -> None:
    fake_driver("libmali.so.1", "NO_HARDWARE")
    good = fake_driver("libmali.so")
    listed, tried = json.loads(python("-c", LISTS, LD_LIBRARY_PATH=str(good.parent)))
    assert listed[0][2] == [str(good), "no .icd file"]
    assert [library for library, _ in tried] == [str(good)]


def test_who_has_chosen_is_left_alone(fake_driver: Callable[..., Path], tmp_path: Path) -> None:
    """Nothing is looked for beside the folder of OCL_ICD_VENDORS."""
    crashes = fake_driver("libigdrcl.so", "CRASHES")
    named = fake_driver("libmali.so.1")
    (tmp_path / "vendors").mkdir()
    (tmp_path / "vendors/fake.icd").write_text(f"{named}\n")
    variables = {"LD_LIBRARY_PATH": str(crashes.parent), "OCL_ICD_VENDORS": str(tmp_path / "vendors")}
    listed, tried = json.loads(python("-c", LISTS, **variables))
    assert tried == []
    assert listed[0] == ["Fake Mali-G610", "gpu", [str(named), str(tmp_path / "vendors/fake.icd")]]


def test_a_variable_of_another_loader_hides_no_driver(fake_driver: Callable[..., Path]) -> None:
    """Images of clouds set OCL_ICD_FILENAMES, which the loader in pyopencl's wheels does not read."""
    board = fake_driver("libmali.so.1")
    listed, _ = json.loads(python("-c", LISTS, LD_LIBRARY_PATH=str(board.parent), OCL_ICD_FILENAMES="libmali.so.1"))
    assert [name for name, *_ in listed].count("Fake Mali-G610") == 1


def test_importing_opens_no_driver(fake_driver: Callable[..., Path]) -> None:
    crashes = fake_driver("libigdrcl.so", "CRASHES")
    script = "import sys, tflgpu, tflgpu.api; from tflgpu.runtime.opencl.driver_files import answer_of as asked\n"
    script += "assert asked.cache_info().misses == 0; tflgpu.devices(); assert asked.cache_info().misses == 1"
    python("-c", script, LD_LIBRARY_PATH=str(crashes.parent))


@pytest.mark.parametrize("as_json", [False, True])
def test_devices_says_where_drivers_were_found(as_json: bool, fake_driver: Callable[..., Path]) -> None:
    board = fake_driver("libmali.so.1")
    environment = {"LD_LIBRARY_PATH": str(board.parent), "COLUMNS": "80"}
    text = python("-c", "from tflgpu.cli import app; app()", "devices", *(["--json"] if as_json else []), **environment)
    if as_json:
        first = json.loads(text)[0]
        assert (first["driver_library"], first["driver_found_by"]) == (str(board), "no .icd file")
        return
    assert max(map(len, text.splitlines())) <= 80
    (line,) = (line for line in text.splitlines() if line.startswith("Fake Platform"))
    assert "no .icd file" in line and line.rstrip().endswith("libmali.so.1")
