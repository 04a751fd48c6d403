"""``tflgpu diff``: LiteRT's CPU interpreter against tflgpu, as the GPU delegate's Inference Diff tool compares."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import tflgpu
from tflgpu.api import CompiledModel
from tflgpu.cli.arguments import AsJson, Mean, ModelPath, Std, with_options
from tflgpu.cli.commands.devices import device_facts
from tflgpu.cli.console import console, note, print_json
from tflgpu.cli.differences import (
    Bisection,
    OutputDiff,
    Tolerance,
    bisect_model,
    bisection_as_dict,
    default_tolerance,
    print_bisection,
    print_errors,
    print_verdict,
)
from tflgpu.cli.progress import Step, compile_model, progress
from tflgpu.evaluate.accuracy import Deviation
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.inputs import InputReader, naming, random_input
from tflgpu.model.known_differences import known_reasons
from tflgpu.model.model_source import read_bytes
from tflgpu.model.reader import read_model
from tflgpu.model.tensor_info import TensorInfo

# Version of the JSON, which docs/tools/inspect.md describes.
FORMAT = 2

# Invocations of either engine in each run. TFLite's tool for delegates makes the same number.
INVOCATIONS = 3


@dataclass(frozen=True)
class Comparison:
    """Grows with the runs: seconds of every invocation of each engine, and what became of each output."""

    reference: list[float]
    test: list[float]
    outputs: list[OutputDiff]


@with_options("device", "precision")
def diff_model(
    model: ModelPath,
    options: tflgpu.Options,
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
    bisect: Annotated[bool, typer.Option("--bisect", help="Name the first tensor in the model that differs.")] = False,
    tolerance: Tolerance = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of LiteRT.", show_default="all cores")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether tflgpu gives what LiteRT's CPU interpreter gives: the error of every output, and both latencies.

    Random inputs are Gaussian: floats in -1..1, 8-bit and 16-bit integers over their range, wider ones 0 or 1. Errors
    of quantized outputs are in quanta (steps of their scale), two of which always pass; all others in the output's own
    numbers. An output's range is that of LiteRT's values and zero. The bisection looks at the result of every kernel,
    in real numbers.

    Exit code: 0 if every output is within the tolerance, else 1.
    """
    with compile_model(model, options) as compiled:
        reference = LiteRT(read_bytes(model), threads or os.cpu_count())
        given = InputReader(model, compiled.inputs, mean=mean, std=std).read(inputs) if inputs else None
        kind = compiled.report.model.kind
        allowed = default_tolerance(compiled.precision, kind) if tolerance is None else tolerance
        with naming(inputs or ()), progress(f"comparing {model.name}", runs) as step:
            exact = _Exact.of(model, options)
            comparison = _compare(compiled, reference, given, runs, seed, allowed, exact, step)
        facts = {"device": device_facts(compiled.device), "precision": compiled.precision}
        floats = compiled.report.floats
        first = given or _draw(compiled.inputs, np.random.default_rng(seed))
    bisection = None
    if bisect:
        with progress(f"comparing the kernels of {model.name}"):
            bisection = bisect_model(read_bytes(model), first, options, allowed, floats)
    failed = not all(o.is_right for o in comparison.outputs)
    if as_json:
        print_json(_as_dict(model, facts, allowed, reference, comparison, bisection))
    else:
        _print(comparison)
        if bisection is not None:
            print_bisection(bisection)
        print_verdict(comparison.outputs, allowed)
        if failed and not inputs:
            note("the inputs were random: what detectors and arg-max make of noise is chance; name files to compare on")
        if failed and not bisect:
            note("--bisect names the first tensor in the model that differs")
    if failed:
        raise typer.Exit(1)


def _draw(infos: Sequence[TensorInfo], generator: np.random.Generator) -> list[NDArray[Any]]:
    return [random_input(info, generator) for info in infos]


def _compare(
    compiled: CompiledModel,
    reference: LiteRT,
    given: list[NDArray[Any]] | None,
    runs: int,
    seed: int,
    tolerance: float,
    exact: _Exact | None,
    step: Step,
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
        if exact is not None:
            exact.add(arrays, expected, [got[info.name] for info in compiled.outputs])
        step()
    reasons = {} if exact is None else exact.reasons()
    times.outputs.extend(
        OutputDiff.of(info, deviation, tolerance, reasons.get(place, ""))
        for place, (info, deviation) in enumerate(zip(compiled.outputs, deviations, strict=True))
    )
    return times


@dataclass
class _Exact:
    """The model without rounding, beside both engines. known: reasons of outputs; errors: of LiteRT and of tflgpu."""

    model: CompiledModel
    known: dict[int, str]
    errors: dict[int, tuple[float, float]]

    @classmethod
    def of(cls, model: Path, options: tflgpu.Options) -> _Exact | None:
        """None for a model of which no difference is known, or which has no other answer without rounding."""
        known = known_reasons(read_model(read_bytes(model)).subgraphs[0])
        if not known or options.numerics.quantized == "float":
            return None
        numerics = replace(options.numerics, quantized="float")
        unrounded = tflgpu.compile(model, replace(options, numerics=numerics, precision="fp32"))
        return cls(unrounded, known, dict.fromkeys(known, (0.0, 0.0)))

    def add(
        self, inputs: Sequence[NDArray[Any]], reference: Sequence[NDArray[Any]], got: Sequence[NDArray[Any]]
    ) -> None:
        """Add the errors of one run."""
        exact = [*self.model.run([*inputs]).values()]
        for place, errors in self.errors.items():
            right = exact[place].astype(np.float64)
            both = (float(np.abs(each[place] - right).max(initial=0.0)) for each in (reference, got))
            first, second = map(max, errors, both)
            self.errors[place] = first, second

    def reasons(self) -> dict[int, str]:
        """Names of the outputs in which tflgpu was nearer."""
        return {place: self.known[place] for place, (reference, own) in self.errors.items() if own < reference}


def _as_dict(
    model: Path,
    facts: dict[str, Any],
    tolerance: float,
    reference: LiteRT,
    comparison: Comparison,
    bisection: Bisection | None,
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "model": model,
        **facts,
        "litert": {"version": reference.version, "threads": reference.threads},
        "runs": len(comparison.test) // INVOCATIONS,
        "reference_seconds": _latency(comparison.reference),
        "test_seconds": _latency(comparison.test),
        "tolerance": tolerance,
        "passed": all(o.is_right for o in comparison.outputs),
        "outputs": [asdict(o) for o in comparison.outputs],
        "bisection": bisection_as_dict(bisection) if bisection else None,
    }


def _latency(seconds: list[float]) -> dict[str, float]:
    return {"avg": float(np.mean(seconds)), "std_dev": float(np.std(seconds))}


def _print(comparison: Comparison) -> None:
    """Print the lines of the delegate's tool, then what else one wants to know of each output."""
    console.print(f"Num evaluation runs: {len(comparison.test) // INVOCATIONS}")
    for engine, seconds in (("Reference", comparison.reference), ("Test", comparison.test)):
        each = _latency(seconds)
        console.print(f"{engine} run latency: avg={1e6 * each['avg']:.6g}(us), std_dev={1e6 * each['std_dev']:.6g}(us)")
    print_errors(comparison.outputs)
