"""A driver's compiler in a thread of its own: it is loaded ahead of time, and Ctrl-C does not wait for it."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tflgpu.errors import BuildError
from tflgpu.runtime.opencl import build
from tflgpu.runtime.opencl.interruptible import interruptible
from tflgpu.runtime.opencl.session import Opening


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


def test_a_compiler_is_loaded_once_for_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody hears of a failure: the model's own program will fail, too."""
    compiled = []

    def compile_program(context: object, text: str) -> None:
        compiled.append(context)
        raise BuildError("no compiler", text, "")

    monkeypatch.setattr(build, "start_compiler", lambda _: False)
    monkeypatch.setattr(build, "compile_program", compile_program)
    loading: dict[Any, threading.Thread] = {}
    monkeypatch.setattr(build, "_loading", loading)
    for context, device in ("a", 1), ("b", 1), ("c", 2):
        build.load_compiler(device, Opening(device, SimpleNamespace(context=context)))  # type: ignore[arg-type]
    for thread in loading.values():
        thread.join()
    assert sorted(compiled) == ["a", "c"]
