"""Models of many independent operators, and what a profile says of each of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from statistics import median

import numpy as np
import pyopencl as cl

import tflgpu
from benchmarks.sweep.drawn_shapes import Drawn
from tflgpu.evaluate.accuracy import Deviation
from tflgpu.model.writer import ModelBuilder
from tflgpu.runtime.executors.launch_executor import LaunchExecutor
from tflgpu.runtime.executors.persistent_executor import PersistentExecutor
from tflgpu.runtime.opencl.clock import Launch

AT_ONCE = 16  # operators of a model: a compilation begins with much that does not depend on their number

FEW, MANY = 4, 24  # runs of an operator: the difference is that of the runs, without the way to the device and back
ROUNDS = 5
LONG = 0.01  # seconds of a run that is measured alone

_POOL = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)


def numbers(shape: Sequence[int]) -> np.ndarray:
    """Random numbers of a shape, made quickly: the same ones again and again, from another one on each time."""
    return np.resize(np.roll(_POOL, -prod(shape) % 9973), shape)


@dataclass(frozen=True)
class Bundle:
    """Operators of one model, each behind an ABS of its own.

    So it reads what a kernel has stored, as within a network, and no input in the host's order.
    """

    operators: tuple[Drawn, ...]

    def model(self) -> bytes:
        builder, results = ModelBuilder(), []
        for drawn in self.operators:
            activations = []
            for shape in drawn.inputs:
                activations.append(builder.tensor(shape))
                builder.op("ABS", [builder.input(shape)], [activations[-1]])
            results.append(builder.tensor(drawn.result, drawn.result_type))
            builder.op(drawn.code, _inputs(builder, drawn, activations), [results[-1]], drawn.options)
        return builder.finish(results)

    def inputs(self) -> list[np.ndarray]:
        return [numbers(shape) for drawn in self.operators for shape in drawn.inputs]

    @property
    def has_steps(self) -> bool:
        """Whether it is one operator of steps that wait for each other."""
        return self.operators[0].steps > 1

    def seconds(self, compiled: tflgpu.CompiledModel) -> list[tuple[float, int]]:
        """Time of each operator of a model that has run, and how many kernels it takes."""
        (instance,) = compiled._runner.instances.values()
        (executor,) = instance._engines
        if isinstance(executor, PersistentExecutor):
            return [(seconds_in_turn(executor.session.queue, executor._launches), len(executor.executable.launches))]
        assert isinstance(executor, LaunchExecutor)
        launches = list(zip(executor._launches, executor.executable.launches, strict=True))
        found = []
        for place in self._places():
            own = [launch for launch, description in launches if place in description.operators]
            found.append((seconds_in_turn(executor.session.queue, own), len(own)))
        return found

    def expected(self, model: bytes) -> list[np.ndarray]:
        """The results of LiteRT's CPU."""
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_content=model)
        interpreter.allocate_tensors()
        for detail, array in zip(interpreter.get_input_details(), self.inputs(), strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

    def _places(self) -> list[int]:
        """The index of each operator in the file."""
        places, place = [], 0
        for drawn in self.operators:
            place += len(drawn.inputs)
            places.append(place)
            place += 1
        return places


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the range of what is expected."""
    deviation = Deviation(None if expected.dtype.kind == "f" else 1.0)
    deviation.add(expected, got.reshape(expected.shape))
    return deviation.relative


def bundles(drawn: Sequence[Drawn]) -> list[Bundle]:
    """Bundles of operators. Those with steps are models of their own, because the steps of several would be computed
    side by side.
    """
    alone = [(each,) for each in drawn if each.steps > 1]
    others = [each for each in drawn if each.steps == 1]
    together = [tuple(others[first : first + AT_ONCE]) for first in range(0, len(others), AT_ONCE)]
    return [Bundle(each) for each in (*alone, *together)]


def seconds_in_turn(queue: cl.CommandQueue, launches: Sequence[Launch]) -> float:
    """From one run of these kernels to the next, when many are enqueued."""

    def run(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            for launch in launches:
                cl.enqueue_nd_range_kernel(queue, *launch)
        queue.finish()
        return time.perf_counter() - begin

    run(1)
    if (once := min(run(1) for _ in range(3))) > LONG:
        return once
    return median(run(MANY) - run(FEW) for _ in range(ROUNDS)) / (MANY - FEW)


def _inputs(builder: ModelBuilder, drawn: Drawn, activations: list[int]) -> list[int]:
    constants = [
        builder.constant(_weights(constant) if isinstance(constant, tuple) else constant)
        for constant in drawn.constants
    ]
    if drawn.code == "UNIDIRECTIONAL_SEQUENCE_LSTM":
        batch, cells = drawn.result[1:]
        state = [builder.tensor((batch, cells), is_variable=True) for _ in range(2)]
        return [*activations, *constants[:8], -1, -1, -1, *constants[8:], -1, -1, *state]
    return [*constants, *activations] if drawn.constants_first else [*activations, *constants]


def _weights(shape: Sequence[int]) -> np.ndarray:
    """So large that sums of products are of order 1. The first axis is that of the output."""
    return numbers(shape) * np.float32(max(1, prod(shape[1:])) ** -0.5)
