"""Calls of a model in the middle of another call by the same thread, as a signal handler makes them.

``python -m tests.runtime.threads.interrupted DEVICE`` makes them before each line of tflgpu that a call runs, by a
trace function, and then in a handler of signals. It fails, or does not end, if a call gives a wrong answer or waits for
the one that it interrupts.
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import tflgpu
from tests.frontend.stateful_models import SHAPE, assign, binary, first_values, read
from tests.support.models import Builder

CONFIGURATIONS = {
    "claiming": tflgpu.Options(execution=tflgpu.Execution(executor="claiming")),
    "launch": tflgpu.Options(execution=tflgpu.Execution(executor="launch")),
    "persistent": tflgpu.Options(execution=tflgpu.Execution(kernels="gpu", executor="persistent")),
    "partly on the cpu": tflgpu.Options(cpu_part=tflgpu.CpuPart(operators=["ADD"])),
}

PACKAGE = str(Path(tflgpu.__file__).parent)

SIGNALS = 100

EVERY = 20  # the number of lines from one before which the model is closed to the next


def sum_of_inputs() -> bytes:
    builder = Builder()
    x = builder.input(SHAPE)
    first_values(builder, {"sum": np.zeros(SHAPE, np.float32)})
    new = binary(builder, "ADD", read(builder, "sum"), x)
    assign(builder, "sum", new)
    return builder.finish([new])


def before_line(number: int, handler: Callable[[], object], call: Callable[[], float]) -> tuple[float | None, bool]:
    """The result of ``call`` if ``handler`` runs before the line of this number, and whether there are so many lines.

    None if the model was closed.
    """
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                handler()
        return trace

    sys.settrace(trace)
    try:
        return call(), left <= 0
    except ValueError as error:
        assert "closed" in str(error)
        return None, left <= 0
    finally:
        sys.settrace(None)


def run(model: tflgpu.CompiledModel, x: int) -> float:
    return total(model.run(np.full(SHAPE, x, np.float32)))


def total(outputs: dict[str, Any]) -> float:
    """The sum of all inputs so far."""
    (output, *_) = outputs.values()
    return float(output.flat[0])


def check_lines(options: tflgpu.Options) -> None:
    model = tflgpu.compile(sum_of_inputs(), options)

    def enqueue(x: int) -> tflgpu.Submission:
        return model.enqueue(np.full(SHAPE, x, np.float32))

    def handler() -> None:
        model.reset_state()
        heard[:] = run(model, 5), total(enqueue(2).wait()), total(waiting.wait())

    heard: list[float] = []
    calls: list[Callable[[], float]] = [lambda: run(model, 30), lambda: total(enqueue(30).wait())]
    for call in calls:
        seen = set()
        number, is_there = 1, True
        while is_there:
            model.reset_state()
            waiting = enqueue(200)
            found, is_there = before_line(number, handler, call)
            if is_there:
                assert heard == [5, 7, 200], (options, number, heard)
                seen.add((found, run(model, 1000)))
            number += 1
        # The handler was before the call or in the middle, with a variable of its own, or after it: only if the call
        # does something after the result is there, which on a busy machine it may find at once.
        assert {(37, 1037), (230, 1000)} <= seen <= {(37, 1037), (230, 1000), (230, 1007)}, (options, seen)
    number, is_there = 1, True
    while is_there:
        found, is_there = before_line(number, model.close, partial(run, model, 30))
        assert found in (30, None), (options, number, found)
        if is_there:
            assert not model._runner.instances
        model = tflgpu.compile(sum_of_inputs(), options)
        number += EVERY


def check_signals(options: tflgpu.Options) -> None:
    model = tflgpu.compile(sum_of_inputs(), options)
    done = 0

    def handler(*_: object) -> None:
        nonlocal done
        model.reset_state()
        model.enqueue(np.full(SHAPE, run(model, 5), np.float32)).wait()
        done += 1
        if done == SIGNALS:
            model.close()
        else:
            signal.setitimer(signal.ITIMER_REAL, 1e-3)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-3)
    try:
        while True:
            run(model, 30)
    except ValueError as error:
        assert "closed" in str(error) and done == SIGNALS


def main(device: str) -> None:
    warnings.simplefilter("ignore", tflgpu.FallbackWarning)
    for configuration in CONFIGURATIONS.values():
        check_lines(replace(configuration, device=device, precision="fp32"))
    check_signals(tflgpu.Options(device=device))
    print("all right")


if __name__ == "__main__":
    main(sys.argv[1])
