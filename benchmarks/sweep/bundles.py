"""Models of many independent operators, and what a profile says of each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

import tflgpu
from benchmarks.sweep.drawn_shapes import Drawn
from tflgpu.evaluate.accuracy import Deviation
from tflgpu.model.writer import ModelBuilder

AT_ONCE = 16  # operators of a model: a compilation begins with much that does not depend on their number

RUNS = 7  # of which a profile takes medians

_POOL = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)


def numbers(shape: Sequence[int]) -> np.ndarray:
    """As many random numbers as wanted, quickly: the same ones again and again, from another one on each time."""
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

    def seconds(self, compiled: tflgpu.CompiledModel) -> list[tuple[float, int]]:
        """Device time of each operator, and how many kernels it takes."""
        launches = [launch for piece in compiled._artifact.pieces for launch in piece.executable.launches]
        profile = compiled.profile(self.inputs(), RUNS)
        found, places = [], self._places()
        for place in places:
            own = [k.seconds for k, launch in zip(profile.kernels, launches, strict=True) if place in launch.operators]
            found.append((sum(own), len(own)))
        return found

    def errors(self, compiled: tflgpu.CompiledModel, model: bytes) -> list[float]:
        """Each result's largest difference from LiteRT's CPU, relative to its range."""
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_content=model)
        interpreter.allocate_tensors()
        inputs = self.inputs()
        for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        expected = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
        got = compiled.run(inputs).values()
        return [_error(a.reshape(b.shape), b) for a, b in zip(got, expected, strict=True)]

    def _places(self) -> list[int]:
        """The index of each operator in the file."""
        places, place = [], 0
        for drawn in self.operators:
            place += len(drawn.inputs)
            places.append(place)
            place += 1
        return places


def _error(got: np.ndarray, expected: np.ndarray) -> float:
    deviation = Deviation(None if expected.dtype.kind == "f" else 1.0)
    deviation.add(expected, got)
    return deviation.relative


def bundles(drawn: Sequence[Drawn]) -> list[Bundle]:
    return [Bundle(tuple(drawn[first : first + AT_ONCE])) for first in range(0, len(drawn), AT_ONCE)]


def compile_bundle(bundle: Bundle, options: tflgpu.Options) -> None:
    """Into the cache."""
    tflgpu.compile(bundle.model(), options).close()


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
