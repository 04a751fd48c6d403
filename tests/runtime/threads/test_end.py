"""The end of Python beside daemon threads that use a model: exit code 0, and no word of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick import on_first_runtime
from tests.safety.models import scaled

SCRIPT = """
import atexit, sys, threading
threads = []

@atexit.register  # before tflgpu's own, so that it runs behind that
def join():
    for thread in threads:
        thread.join()
    print("joined")

import numpy as np, tflgpu

def compiled():
    return tflgpu.compile(sys.argv[1], tflgpu.Options(device=sys.argv[2], cache="off"))

x, model = np.ones((1, 2, 2, 4), np.float32), compiled()
works = lambda: model.run(x), lambda: model.run(x), lambda: model.enqueue(x).wait(), lambda: compiled().run(x)
begun = threading.Barrier(len(works) + 1)

def again_and_again(work):
    work()
    begun.wait()
    while True:
        work()

threads += [threading.Thread(target=again_and_again, args=[work], daemon=True) for work in works]
for thread in threads:
    thread.start()
begun.wait()

@atexit.register
def use():
    print(compiled().run(x)["y"].item(0), model.enqueue(x).wait()["y"].item(0))

class Last:
    def __del__(self):
        print(model.run(x)["y"].item(0))
last = Last()
"""


@pytest.mark.quick(when=on_first_runtime)
def test_the_end_beside_daemon_threads(device_name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(scaled(2.0))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, path, device_name],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    # PoCL's compiler counts its warnings there, on CPUs without AVX-512.
    complaints = [line for line in done.stderr.splitlines() if not re.fullmatch(r"\d+ warnings? generated\.", line)]
    assert (done.returncode, done.stdout, complaints) == (0, "2.0 2.0\njoined\n2.0\n", [])


# A thread that compiles for longer than the end has patience, when a driver takes down what it uses.
LATE = """
import sys, threading, warnings, tflgpu
from tflgpu.runtime.opencl import process
process.PATIENCE = float(sys.argv[3])
begun = threading.Event()

def compile_for_ever():
    while True:
        with process.Using():  # not only between two of them
            begun.set()
            tflgpu.compile(sys.argv[1], tflgpu.Options(device=sys.argv[2], cache="off"))

tflgpu.devices()
threading.Thread(target=compile_for_ever, daemon=True).start()
begun.wait()
print("told")
"""


@pytest.mark.quick(when=on_first_runtime)
@pytest.mark.parametrize(("patience", "code"), [(0.01, 1), (90.0, 0)])
def test_the_end_beside_a_thread_that_compiles(patience: float, code: int, device_name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(scaled(2.0))
    done = subprocess.run(
        [sys.executable, "-c", LATE, path, device_name, str(patience)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "told\n")
    assert ("a thread does not come back" in done.stderr) == bool(code)
