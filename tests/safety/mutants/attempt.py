"""The trial of a mutant: tflgpu compiles and runs it, LiteRT's two sets of kernels say what is right.

Either may crash or hang, so both belong into a :class:`~tests.safety.sandbox.Sandbox` of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import tflgpu
from tests.conformance.cases import Array
from tflgpu.errors import FallbackWarning
from tflgpu.model.tensor_info import TensorInfo

KERNELS = {
    "plain": OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    "reference": OpResolverType.BUILTIN_REF,
}
CPU_SECONDS = 10.0  # for each part that LiteRT runs
LARGE = 1 << 24  # elements
TOO_LARGE = 1 << 28  # elements of inputs: arrays of the caller's, and what is computed of them, would fill the memory
RUNS = 2  # what the first one left behind must not reach the second


@dataclass(frozen=True)
class Job:
    """inputs: for the model that it was; they are taken where they still fit."""

    data: bytes
    inputs: Sequence[Array]
    fallback: tflgpu.options.Fallback = "auto"


@dataclass(frozen=True)
class Answer:
    """One run: what was given, and what came of it."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


@dataclass(frozen=True)
class Question:
    data: bytes
    inputs: Sequence[dict[str, Array]]


@dataclass(frozen=True)
class Opinion:
    """The results of a set of LiteRT's kernels in each run, in order. largest: the largest finite number in any
    tensor.
    """

    outputs: list[dict[str, Array]]
    largest: float


def open_device() -> None:
    """Let a small model run, so that no mutant pays for the driver."""
    from tests.safety.mutants.originals import network

    compile_and_run(Job(network("relu", 0).data, ()))


def compile_and_run(job: Job) -> list[Answer]:
    options = tflgpu.Options(
        device="Intel",
        precision="fp32",
        cache="off",
        fallback=job.fallback,
        cpu_part=tflgpu.CpuPart(trial_timeout=CPU_SECONDS),
    )
    rng, answers = np.random.default_rng(0), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        with tflgpu.compile(job.data, options) as model:
            if sum(prod(info.shape) for info in model.inputs) > TOO_LARGE:
                return []
            for _ in range(RUNS):
                inputs = {info.name: _input(i, info, job.inputs, rng) for i, info in enumerate(model.inputs)}
                answers.append(Answer(inputs, model.run(inputs)))
    return answers


def ask_litert(question: Question) -> dict[str, Opinion | str]:
    """The opinion of each set of kernels; a text if it refuses."""
    return {name: _opinion(question, resolver) for name, resolver in KERNELS.items()}


def _input(number: int, info: TensorInfo, given: Sequence[Array], rng: np.random.Generator) -> Array:
    dtype = np.dtype(info.dtype)
    if number < len(given) and (given[number].shape, given[number].dtype) == (info.shape, dtype):
        return rng.permutation(given[number].reshape(-1)).reshape(info.shape) if rng.random() < 0.5 else given[number]
    if prod(info.shape) > LARGE:  # only the sizes count
        return np.zeros(info.shape, dtype)
    if dtype.kind == "f":
        return rng.standard_normal(info.shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 4, info.shape).astype(dtype)


def _opinion(question: Question, resolver: OpResolverType) -> Opinion | str:
    try:
        interpreter = Interpreter(
            model_content=question.data,
            num_threads=1,
            experimental_op_resolver_type=resolver,
            experimental_preserve_all_tensors=True,
        )
        if keys := list(interpreter.get_signature_list()):
            runner = interpreter.get_signature_runner(keys[0])
            runs = [{**runner(**inputs)} for inputs in question.inputs]
        else:
            runs = [_run(interpreter, list(inputs.values())) for inputs in question.inputs]
        outputs = [{name: _truth(array) for name, array in run.items()} for run in runs]
    except Exception as error:  # any refusal: LiteRT is not on trial
        return f"{type(error).__name__}: {error}"
    tensors = [a for output in outputs for a in output.values()]
    return Opinion(outputs, _largest([*tensors, *_every_tensor(interpreter)]))


def _run(interpreter: Interpreter, inputs: Sequence[Array]) -> dict[str, Array]:
    details = interpreter.get_input_details()
    if [tuple(d["shape"]) for d in details] != [a.shape for a in inputs]:
        for detail, array in zip(details, inputs, strict=True):
            interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    for detail, array in zip(details, inputs, strict=True):
        if array.size:
            interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return {str(number): _tensor(interpreter, d) for number, d in enumerate(interpreter.get_output_details())}


def _truth(array: Array) -> Array:
    """A damaged constant has booleans other than 0 and 1, which numpy takes for true but not for equal."""
    return array.view(np.uint8) != 0 if array.dtype.kind == "b" else array


def _tensor(interpreter: Interpreter, detail: dict[str, Any]) -> Array:
    """get_tensor refuses empty tensors."""
    return (
        np.zeros(detail["shape"], detail["dtype"]) if 0 in detail["shape"] else interpreter.get_tensor(detail["index"])
    )


def _every_tensor(interpreter: Interpreter) -> Iterator[Array]:
    """Every tensor that is in memory after the last run."""
    for detail in interpreter.get_tensor_details():
        with suppress(ValueError):  # it has no memory
            yield interpreter.get_tensor(detail["index"])


def _largest(tensors: Iterable[Array]) -> float:
    floats = (np.abs(t.astype(np.float64)) for t in map(np.asarray, tensors) if t.dtype.kind == "f")
    return max((float(size.max(where=np.isfinite(size), initial=0.0)) for size in floats), default=0.0)
