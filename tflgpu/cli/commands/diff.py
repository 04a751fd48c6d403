"""``tflgpu diff``: LiteRT's CPU interpreter against tflgpu, as the GPU delegate's Inference Diff tool compares."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.markup import escape

import tflgpu
from tflgpu.api import CompiledModel
from tflgpu.cli.arguments import AsJson, DeviceName, Mean, ModelPath, PrecisionName, Std
from tflgpu.cli.bisection import Bisection, bisect_model, bisection_as_dict, print_bisection
from tflgpu.cli.commands.devices import device_facts
from tflgpu.cli.console import console, print_json
from tflgpu.evaluate.accuracy import Deviation
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.inputs import InputReader, naming, random_input
from tflgpu.model.tensor_info import TensorInfo

# Largest error, as a part of a tensor's range, that a precision explains.
BOUNDS = {"fp32": 1e-4, "fp16": 2e-2}

# Of either engine in each run, as the delegate's tool has it.
INVOCATIONS = 3


@dataclass(frozen=True)
class OutputDiff:
    """One output over all runs, each number as :class:`Deviation` defines it. unit: ``"value"`` or ``"quanta"``."""

    name: str
    dtype: str
    unit: str
    avg_error: float
    std_dev: float
    max_error: float
    range: float
    relative_error: float

    @classmethod
    def of(cls, info: TensorInfo, found: Deviation) -> OutputDiff:
        unit = "value" if found.quantum is None else "quanta"
        errors = found.avg_error, found.std_dev, found.max_error
        return cls(info.name, info.dtype, unit, *errors, found.extent, found.relative)


@dataclass(frozen=True)
class Comparison:
    """Grows with the runs: seconds of every invocation of each engine, and what became of each output."""

    reference: list[float]
    test: list[float]
    outputs: list[OutputDiff]


def diff_model(
    model: ModelPath,
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="INPUT...",
            help="An image or a .npy file for each input, or one .npz file for all; random without.",
            show_default=False,
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs, each with random inputs of its own.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Of the random inputs.")] = 0,
    mean: Mean = None,
    std: Std = None,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Name the first tensor in the model whose error is past the bound.")
    ] = False,
    bound: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Largest error, as a part of the tensor's range; given, an output past it makes the exit code 1.",
            show_default="1e-4 in fp32, 2e-2 in fp16",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of LiteRT.", show_default="all cores")] = None,
    device: DeviceName = "auto",
    precision: PrecisionName = "auto",
    as_json: AsJson = False,
) -> None:
    """Compare tflgpu with LiteRT's CPU interpreter: latency of both, and the error of every output.

    Random inputs are Gaussian: floats in -1..1, 8-bit and 16-bit integers over their range, wider ones 0 or 1. Errors
    of quantized outputs are in quanta (steps of their scale), two of which always pass; all others in the output's own
    numbers. The bisection looks at the result of every kernel, in real numbers.

    Exit code: 0 if the comparison was made; 1 if it was not, or if --bound is given and an output is past it.
    """
    options = tflgpu.Options(device=device, precision=precision)
    with tflgpu.compile(model, options) as compiled:
        reference = LiteRT(model.read_bytes(), threads or os.cpu_count())
        given = InputReader(model, compiled.inputs, mean=mean, std=std).read(inputs) if inputs else None
        with naming(inputs or ()):
            comparison = _compare(compiled, reference, given, runs, seed)
        facts = {"device": device_facts(compiled.device), "precision": compiled.precision}
        allowed = BOUNDS[compiled.precision] if bound is None else bound
        first = given or _draw(compiled.inputs, np.random.default_rng(seed))
    bisection = bisect_model(model.read_bytes(), first, options, allowed) if bisect else None
    if as_json:
        print_json(_as_dict(model, facts, allowed, reference, comparison, bisection))
    else:
        _print(comparison)
        if bisection is not None:
            print_bisection(bisection)
    if bound is not None and any(o.relative_error > bound for o in comparison.outputs):
        raise typer.Exit(1)


def _draw(infos: Sequence[TensorInfo], generator: np.random.Generator) -> list[NDArray[Any]]:
    return [random_input(info, generator) for info in infos]


def _compare(
    compiled: CompiledModel, reference: LiteRT, given: list[NDArray[Any]] | None, runs: int, seed: int
) -> Comparison:
    """Both engines run equally often, so that the variables of a streaming model stay in step."""
    generator = np.random.default_rng(seed)
    deviations = [Deviation(1.0 if o.quantization else None) for o in compiled.outputs]
    times = Comparison([], [], [])
    for run in range(runs):
        arrays = given or _draw(compiled.inputs, generator)
        if run == 0:  # the first run of every engine pays for what the others find ready
            reference.run(arrays)
            compiled.run(arrays)
        for _ in range(INVOCATIONS):
            start = time.perf_counter()
            expected = reference.run(arrays)
            middle = time.perf_counter()
            got = compiled.run(arrays)
            times.reference.append(middle - start)
            times.test.append(time.perf_counter() - middle)
        for deviation, info, array in zip(deviations, compiled.outputs, expected, strict=True):
            deviation.add(array, got[info.name])
    times.outputs.extend(OutputDiff.of(*each) for each in zip(compiled.outputs, deviations, strict=True))
    return times


def _as_dict(
    model: Path,
    facts: dict[str, Any],
    bound: float,
    reference: LiteRT,
    comparison: Comparison,
    bisection: Bisection | None,
) -> dict[str, Any]:
    return {
        "format": 1,
        "model": model,
        **facts,
        "litert": {"version": reference.version, "threads": reference.threads},
        "runs": len(comparison.test) // INVOCATIONS,
        "reference_seconds": _latency(comparison.reference),
        "test_seconds": _latency(comparison.test),
        "bound": bound,
        "outputs": [asdict(o) for o in comparison.outputs],
        "bisection": bisection_as_dict(bisection) if bisection else None,
    }


def _latency(seconds: list[float]) -> dict[str, float]:
    return {"avg": float(np.mean(seconds)), "std_dev": float(np.std(seconds))}


def _print(comparison: Comparison) -> None:
    """In the form of the delegate's tool, each line with what else one wants to know of it."""
    console.print(f"Num evaluation runs: {len(comparison.test) // INVOCATIONS}")
    for engine, seconds in (("Reference", comparison.reference), ("Test", comparison.test)):
        each = _latency(seconds)
        console.print(f"{engine} run latency: avg={1e6 * each['avg']:.6g}(us), std_dev={1e6 * each['std_dev']:.6g}(us)")
    print_errors(comparison.outputs)


def print_errors(outputs: Sequence[OutputDiff]) -> None:
    """A line for each output, with what the tool does not say behind it."""
    for i, o in enumerate(outputs):
        console.print(
            f"OutputDiff\\[{i}]: avg_error={o.avg_error:.6g}, std_dev={o.std_dev:.6g}, max={o.max_error:.6g} "
            f"[dim]({o.unit}; {o.relative_error:.2g} of its range {o.range:.6g})[/] {escape(o.name)}",
            soft_wrap=True,
        )
