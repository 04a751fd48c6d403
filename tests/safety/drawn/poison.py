"""Memory that no kernel has written holds no zeros: what reads past the end of a tensor shows at once.

Arrays of callers have margins, see :mod:`tests.safety.drawn.device_arrays`. Zeros are promised in two places only: in
the lanes past the last channel of what a kernel stores, and up to the next vec4 behind a model's input. All else is
filled before a run.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyopencl as cl

import tflgpu
from tflgpu.artifact.executable import HEADER, Executable
from tflgpu.graph.layout import LANES
from tflgpu.runtime.executors.executor import Executor
from tflgpu.runtime.transfer import end
from tflgpu.target import ITEM_BYTES

NANS = 0xFFFFFFFF  # a NaN as a float and as two halves, -1 as integers


def poison(model: tflgpu.CompiledModel, word: int = NANS) -> None:
    """Fill the device memory of a model that is not running, but for constants, states and what stays zero."""
    for instance in model._runner.instances.values():
        for executor in instance._executors():
            _fill(executor, np.array([word], np.uint32))


def _fill(executor: Executor, word: np.ndarray) -> None:
    queue, executable = executor.session.queue, executor.executable
    states = {state.buffer for state in executable.states}
    # Not constants: the first argument of a kernel is what it writes.
    written = {launch.arguments[0].buffer for launch in executable.launches}
    bound = {binding.buffer for binding in executable.bindings}
    for number in (written | bound) - states:
        for begin, stop in _ranges(executable, number):
            cl.enqueue_fill(queue, executor._buffers[number], word, stop - begin, offset=begin)
    queue.finish()


def _ranges(executable: Executable, number: int) -> Iterator[tuple[int, int]]:
    """The ranges of a buffer that may be filled, in whole words: all but inputs, up to whole vec4s, and the executor's
    header.
    """
    kept = [(0, HEADER)] if number == executable.results else []
    for binding in executable.inputs:
        if binding.buffer == number:
            vec4 = LANES * ITEM_BYTES[binding.element]
            kept.append((binding.offset, binding.offset - (binding.offset - end(binding)) // vec4 * vec4))
    size = executable.buffers[number].bytes
    bounds = [0, *(place for pair in sorted(kept) for place in pair), size]
    for begin, stop in zip(bounds[::2], bounds[1::2], strict=True):
        if (stop := min(stop, size) // 4 * 4) > begin:
            yield begin, stop
