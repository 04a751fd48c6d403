"""A driver's compiler in a thread of its own: it is loaded ahead of time, and Ctrl-C does not wait for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tflgpu.errors import BuildError
from tflgpu.runtime.opencl import build, compiler_process
from tflgpu.runtime.opencl.process import LITTLE_WORK, InterruptibleRuns, interruptible
from tflgpu.runtime.opencl.session import SessionOpening


def test_an_interrupt_does_not_wait_for_the_call() -> None:
    go_on, main = threading.Event(), threading.main_thread().ident
    assert main is not None

    def call() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        go_on.wait(60)

    with pytest.raises(KeyboardInterrupt) as interrupt:
        interruptible(call)
    assert "cannot be stopped" in interrupt.value.__notes__[0]
    assert any(thread.name.startswith("tflgpu-driver") for thread in threading.enumerate()), "it did wait"
    go_on.set()


def test_the_call_raises_and_returns_as_without() -> None:
    assert interruptible(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)


def test_the_next_run_begins_behind_an_interrupted_one() -> None:
    runs, go_on, main = InterruptibleRuns(2 * LITTLE_WORK), threading.Event(), threading.main_thread().ident
    order = []
    assert main is not None

    def run() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        go_on.wait(60)
        order.append("interrupted")

    with pytest.raises(KeyboardInterrupt):
        runs.make(run)
    threading.Timer(0.1, go_on.set).start()
    runs.settle()
    runs.make(lambda: order.append("next"))
    assert order == ["interrupted", "next"]


def test_short_runs_stay_in_their_thread() -> None:
    runs = InterruptibleRuns(work=0)
    assert runs.make(threading.current_thread) is threading.main_thread()
    first = InterruptibleRuns(2 * LITTLE_WORK)
    assert first.make(threading.current_thread) is not threading.main_thread()
    assert first.make(threading.current_thread) is threading.main_thread(), "the last one was short"


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
import tflgpu
from tflgpu.model.writer import ModelBuilder

builder = ModelBuilder()
if sys.argv[1] == "sort":
    x = np.random.default_rng(0).random(40_000, np.float32)
    tensor, results = builder.input(x.shape), [builder.tensor(x.shape), builder.tensor(x.shape, "int32")]
    builder.op("TOPK_V2", [tensor, builder.constant(np.array(x.size, np.int32))], results)
else:
    x = np.zeros((1, 4096, 4096), np.float32)
    tensor, results = builder.input(x.shape), [builder.tensor(x.shape)]
    middle = builder.tensor(x.shape)
    for inputs, result in (([tensor, tensor], middle), ([middle, tensor], results[0])):
        builder.op("BATCH_MATMUL", inputs, [result], {"adj_x": False, "adj_y": False})
model = tflgpu.compile(builder.finish(results), tflgpu.Options(device=sys.argv[2], precision="fp32", cache="off"))
sent = []

def interrupt():
    sent.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)

threading.Timer(0.3, interrupt).start()
begun = time.monotonic()
try:
    while time.monotonic() - begun < 20:
        model.run(x)
except KeyboardInterrupt:
    print(time.monotonic() - sent[0], flush=True)
os._exit(0)  # the device may go on for seconds
"""


@pytest.mark.parametrize("what", ["sort", "product"])
def test_a_run_answers_an_interrupt_within_a_second(what: str, device_name: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, what, device_name]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1


def test_a_compiler_is_loaded_once_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody hears of a failure: the model's own program will fail, too."""
    compiled = []

    def compile_program(context: object, text: str) -> None:
        compiled.append(context)
        raise BuildError("no compiler", text, "")

    monkeypatch.setattr(compiler_process, "start_compiler", lambda _: False)
    monkeypatch.setattr(build, "compile_program", compile_program)
    loading: dict[Any, threading.Thread] = {}
    monkeypatch.setattr(build, "_loading", loading)
    for context, device in ("a", 1), ("b", 1), ("c", 2):
        build.load_compiler(device, SessionOpening(device, SimpleNamespace(context=context)))  # type: ignore[arg-type]
    for thread in loading.values():
        thread.join()
    assert sorted(compiled) == ["a", "c"]
