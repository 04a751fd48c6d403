"""A case of a benchmark: a model at one batch size in one precision, and LiteRT's results for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from benchmarks import zoo
from tflgpu.evaluate.accuracy import Deviation
from tflgpu.inputs import random_input
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Precision

# The largest allowed error of an output, relative to its range.
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2}


def relative_error(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, relative to the range of the expected values and zero; 0 for integers within two."""
    deviation = Deviation(None if expected.dtype.kind == "f" else 1.0)
    deviation.add(expected, got)
    return deviation.relative


@dataclass(frozen=True)
class Case:
    """model: a .tflite file or a name of the zoo. device: index of the OpenCL device. cache: a folder for binaries."""

    model: str
    batch: int
    precision: Precision
    device: int
    cache: str

    @cached_property
    def data(self) -> bytes:
        return zoo.load(self.model)

    @cached_property
    def _interpreter(self) -> Interpreter:
        interpreter = Interpreter(model_content=self.data, num_threads=8)
        if self.batch != 1:
            for detail in interpreter.get_input_details():
                interpreter.resize_tensor_input(detail["index"], (self.batch, *detail["shape"][1:]))
        interpreter.allocate_tensors()
        return interpreter

    @cached_property
    def inputs(self) -> dict[int, np.ndarray]:
        """Random numbers for each input, by its index in the file, in the order of the model's inputs."""
        random = np.random.default_rng(0)
        infos = {
            d["index"]: TensorInfo(d["name"], tuple(d["shape"]), np.dtype(d["dtype"]).name, None)
            for d in self._interpreter.get_input_details()
        }
        return {index: random_input(info, random) for index, info in infos.items()}

    @cached_property
    def expected(self) -> dict[int, np.ndarray]:
        """The outputs of LiteRT's CPU interpreter, by their indices in the file."""
        for index, array in self.inputs.items():
            self._interpreter.set_tensor(index, array)
        self._interpreter.invoke()
        return {d["index"]: self._interpreter.get_tensor(d["index"]) for d in self._interpreter.get_output_details()}

    def error(self, outputs: Sequence[np.ndarray]) -> float:
        """The largest relative error of outputs, given in the model's order."""
        pairs = zip(outputs, self.expected.values(), strict=True)
        return max(relative_error(got, expected.reshape(got.shape)) for got, expected in pairs)
