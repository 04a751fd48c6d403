"""Ctrl-C while a driver's compiler works."""

from __future__ import annotations

import signal
import threading

import pytest

from tflgpu.runtime.opencl.interruptible import interruptible


def test_an_interrupt_does_not_wait_for_the_call() -> None:
    go_on, main = threading.Event(), threading.main_thread().ident
    assert main is not None

    def call() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        go_on.wait(60)

    with pytest.raises(KeyboardInterrupt) as interrupt:
        interruptible(call)
    assert "cannot be stopped" in interrupt.value.__notes__[0]
    assert any(thread.name.startswith("tflgpu-compiler") for thread in threading.enumerate()), "it did wait"
    go_on.set()


def test_the_call_raises_and_returns_as_without() -> None:
    assert interruptible(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)
