"""A model of three inputs and outputs, and arrays on the device for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyopencl.array as cl_array
from numpy.typing import NDArray

import tflgpu
from tflgpu.model.writer import ModelBuilder

Array = NDArray[np.float32]


SHAPES = (1, 5, 7, 3), (1, 4, 4, 4), (1, 6)


CONFIGURATIONS = {
    "cpu kernels": tflgpu.Execution(kernels="cpu", executor="launch"),
    "gpu kernels": tflgpu.Execution(kernels="gpu", executor="launch"),
    "persistent": tflgpu.Execution(kernels="gpu", executor="persistent"),
}


def three_of_each(shapes: Sequence[tuple[int, ...]] = SHAPES) -> bytes:
    """softmax(x) of an image in the host's order, of whole vec4s, and of a row with lanes that are padding."""
    builder = ModelBuilder()
    inputs = [builder.input(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
    outputs = [builder.tensor(shape, name=f"y{i}") for i, shape in enumerate(shapes)]
    for x, y in zip(inputs, outputs, strict=True):
        builder.op("SOFTMAX", [x], [y], {"beta": 1.0})
    return builder.finish(outputs)


def arrays(seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {f"x{i}": random.normal(size=shape).astype(np.float32) for i, shape in enumerate(SHAPES)}


def on_device(model: tflgpu.CompiledModel, given: dict[str, Array]) -> dict[str, cl_array.Array]:
    return {name: cl_array.to_device(model.queue, a) for name, a in given.items()}


def fresh_outputs(model: tflgpu.CompiledModel) -> dict[str, cl_array.Array]:
    return {info.name: cl_array.zeros(model.queue, info.shape, np.float32) for info in model.outputs}
