"""Ctrl-C, as a shell sends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.command import MODEL

ROOT = Path(__file__).parents[3]

# A verb that waits in Python, or in a call of C that answers no signal. It says so once it is inside: no other thread
# has a turn before.
PROGRAM = """
import hashlib, sys, threading, time
from tflgpu.cli import app
calls = {"python": lambda: time.sleep(600), "c": lambda: hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)}
def tell(waits: threading.Event) -> None:
    waits.wait()
    sys.setswitchinterval(0.005)
    print("begun", flush=True)
@app.command("wait")
def wait(where: str) -> None:
    waits = threading.Event()
    threading.Thread(target=tell, args=(waits,), daemon=True).start()
    sys.setswitchinterval(1e3)
    waits.set()
    calls[where]()
app()
"""

# A verb that waits for a process of its own, which says so.
PARENT = """
from tflgpu.cli import app
from tflgpu.cli.own_processes import in_own_process
@app.command("wait")
def wait() -> None:
    in_own_process(exec, "import time; print('begun', flush=True); time.sleep(60)")
app()
"""

SECONDS = 60  # of patience with a busy machine


@contextmanager
def begun(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """In a session of its own, as a terminal has one."""
    command = [sys.executable, "-c", program, "wait", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's here")
def test_ctrl_c_ends_the_process_as_a_shell_expects() -> None:
    with begun(PROGRAM, "python") as process:
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGINT, "a loop of the shell has to see that it was interrupted"
    assert messages == "interrupted\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's here")
def test_ctrl_c_says_that_it_waits_and_ends_the_second_time() -> None:
    with begun(PROGRAM, "c") as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None and "waiting for the driver" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=SECONDS) == 128 + signal.SIGINT


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's here")
def test_a_signal_that_is_handed_on_is_no_second_one() -> None:
    """`timeout` and the like get Ctrl-C too, and hand it on."""
    with begun(PROGRAM, "c") as process:
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None and "waiting for the driver" in process.stderr.readline()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's here")
def test_ctrl_c_ends_the_processes_of_a_verb_in_silence() -> None:
    """A terminal sends it to all of them."""
    with begun(PARENT) as process:
        os.killpg(process.pid, signal.SIGINT)
        _, messages = process.communicate(timeout=SECONDS)
    assert (process.returncode, messages) == (-signal.SIGINT, "interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's here")
@pytest.mark.parametrize("module", ["pyopencl", "jinja2", "typer"])
def test_interrupts_of_imports_end_without_a_traceback(module: str, tmp_path: Path) -> None:
    """Interrupt the imports of `tflgpu` and of a verb."""
    (tmp_path / f"{module}.py").write_text("import time; print('begun', flush=True); time.sleep(60)")
    command = [sys.executable, "-m", "tflgpu", "show", str(MODEL), "--stage", "source"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, env=environment, **pipes) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=SECONDS)
    assert process.returncode == -signal.SIGINT
    assert "Traceback" not in error
