"""LiteRT's CPU interpreter as the judge of whole models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

from tflgpu import CompiledModel

Array = NDArray[Any]


def run(model: bytes, *inputs: Array) -> dict[str, Array]:
    """The model's outputs by tensor name, from LiteRT's default path."""
    interpreter = _invoked(Interpreter(model_content=model, num_threads=2), inputs)
    return {d["name"]: interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()}


def run_all_tensors(model: bytes, *inputs: Array) -> dict[str, Array]:
    """Every float tensor that the model computes, by name.

    Only the plain kernels leave intermediate results in memory: a delegate keeps them to itself.
    """
    interpreter = Interpreter(
        model_content=model,
        num_threads=2,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    _invoked(interpreter, inputs)
    return {
        d["name"]: interpreter.get_tensor(d["index"])
        for d in interpreter.get_tensor_details()
        if d["dtype"] == np.float32 and d["name"]
    }


def _invoked(interpreter: Interpreter, inputs: tuple[Array, ...]) -> Interpreter:
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return interpreter


def kept_interpreter(model: bytes) -> Interpreter:
    """LiteRT's default path, for :func:`run_again`, as a user keeps it from run to run."""
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    return interpreter


def run_again(interpreter: Interpreter, inputs: Sequence[Array]) -> list[Array]:
    """The outputs in order, with the shapes of this run."""
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    # get_tensor refuses empty tensors.
    return [
        np.zeros(d["shape"], d["dtype"]) if 0 in d["shape"] else interpreter.get_tensor(d["index"])
        for d in interpreter.get_output_details()
    ]


def shapes_of_equal_runs(
    model: CompiledModel, data: bytes, draw: Callable[[np.random.Generator], Sequence[Array]], runs: int
) -> list[tuple[tuple[int, ...], ...]]:
    """The shapes of the outputs in each of some runs, in which shapes, types and values are LiteRT's.

    data: the model's file. draw: the inputs of a run.
    """
    judge, rng, shapes = kept_interpreter(data), np.random.default_rng(0), []
    for _ in range(runs):
        inputs = draw(rng)
        expected = run_again(judge, inputs)
        for got, wanted in zip(model.run(inputs).values(), expected, strict=True):
            assert got.shape == wanted.shape and got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
        shapes.append(tuple(each.shape for each in expected))
    return shapes
