"""Ctrl-C, as a shell sends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

# A verb that waits in Python, or in a call of C that answers no signal. It says so once it is inside: no other thread
# has a turn before.
PROGRAM = """
import hashlib, sys, threading, time
from tflgpu.cli import app
calls = {"python": lambda: time.sleep(60), "c": lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)}
@app.command("wait")
def wait(where: str) -> None:
    sys.setswitchinterval(1e3)
    waits = threading.Event()
    threading.Thread(target=lambda: waits.wait() and print("begun", flush=True)).start()
    waits.set()
    calls[where]()
app()
"""


# A verb that waits for a process of its own, which says so.
PARENT = """
from tflgpu.cli import app
from tflgpu.cli.processes import in_own_process
@app.command("wait")
def wait() -> None:
    in_own_process(exec, "import time; print('begun', flush=True); time.sleep(60)")
app()
"""


def begun(where: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "wait", where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's here")
def test_ctrl_c_ends_the_process_as_a_shell_expects() -> None:
    process = begun("python")
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, "a loop of the shell has to see that it was interrupted"
    assert messages == "interrupted\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's here")
def test_ctrl_c_says_that_it_waits_and_ends_the_second_time() -> None:
    process = begun("c")
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    assert "waiting for the driver" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 128 + signal.SIGINT
    process.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's here")
def test_ctrl_c_ends_the_processes_of_a_verb_in_silence() -> None:
    """A terminal sends it to all of them."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    os.killpg(process.pid, signal.SIGINT)
    _, messages = process.communicate(timeout=30)
    assert (process.returncode, messages) == (-signal.SIGINT, "interrupted\n")
