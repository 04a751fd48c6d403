"""Every model in both executors and both precisions beside LiteRT's CPU interpreter, as rows of JSON.

    python -m benchmarks.models MODEL... [--device D] [--executor launch,persistent] [--precision fp16,fp32] [--jobs 1]
                                [--out FILE]

Each run is a process of its own, so that a crash affects no other run. With several --jobs the runs share the device,
and the times are rough. ``max_error`` is the largest of all outputs, relative to the range of LiteRT's values and zero,
on random inputs. It is 0 for quantized outputs within two quanta, and null if LiteRT does not run the model. It ignores
a model's task: if a detector finds the same boxes in another order, the error is large. ``error`` says why a model did
not run; the script then fails.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np

import tflgpu
from benchmarks import choices
from benchmarks.contest.contender import timed
from benchmarks.publish import publish
from tflgpu.cli.own_processes import in_own_process
from tflgpu.evaluate.accuracy import Deviation
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.inputs import random_input
from tflgpu.options import ExecutorChoice, Precision
from tflgpu.runtime.opencl.devices import choose

RUNS = 20


def measured(model: str, device: int, executor: ExecutorChoice, precision: Precision) -> dict[str, object]:
    """The measurements of one process. Raises the errors of compiling and running the model."""
    warnings.simplefilter("ignore", tflgpu.FallbackWarning)
    options = tflgpu.Options(
        device=device, execution=tflgpu.Execution(executor=executor), precision=precision, cache="off"
    )
    start = time.perf_counter()
    with tflgpu.compile(model, options) as compiled:
        compile_s = time.perf_counter() - start
        random = np.random.default_rng(0)
        inputs = [random_input(info, random) for info in compiled.inputs]
        outputs = compiled.run(inputs)  # the model's first run, so that its state is that of LiteRT
        run_s = median(timed(lambda: compiled.run(inputs))(RUNS))
        on_cpu = sum(o.device == "cpu" for o in compiled.report.operators)
        return {
            "compile_s": round(compile_s, 3),
            "run_ms": round(1e3 * run_s, 4),
            "kernels": compiled.report.kernels,
            "cpu_operators": on_cpu,
            "max_error": _error(model, compiled, inputs, outputs),
        }


def _error(
    model: str, compiled: tflgpu.CompiledModel, inputs: list[np.ndarray], outputs: Mapping[str, np.ndarray]
) -> float | None:
    try:
        expected = LiteRT(Path(model).read_bytes(), None).run(inputs)
    except ValueError:
        return None
    errors = []
    for info, reference in zip(compiled.outputs, expected, strict=True):
        quantization = info.quantization
        deviation = Deviation(quantization.scale[0] if quantization else None)
        deviation.add(reference.reshape(outputs[info.name].shape), outputs[info.name])
        errors.append(deviation.relative)
    return max(errors)


def rows(
    models: Sequence[str],
    device: int,
    executors: Sequence[ExecutorChoice],
    precisions: Sequence[Precision],
    jobs: int,
) -> Iterator[dict[str, object]]:
    """A row for each model, precision and executor, in the order in which they are finished."""
    names = ("model", "precision", "executor")
    with ThreadPoolExecutor(jobs) as pool:
        runs = {
            pool.submit(in_own_process, measured, model, device, executor, precision): (model, precision, executor)
            for model, precision, executor in product(models, precisions, executors)
        }
        for run in as_completed(runs):
            model, *chosen = runs[run]
            row: dict[str, object] = dict(zip(names, (Path(model).stem, *chosen), strict=True))
            try:
                yield row | run.result().value
            except (tflgpu.TflgpuError, OSError, ValueError) as error:
                yield row | {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--executor", type=choices.executors, default="launch,persistent")
    parser.add_argument("--precision", type=choices.precisions, default="fp16,fp32")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    failed: list[str] = []

    def watched() -> Iterator[dict[str, object]]:
        for row in rows(arguments.models, device.index, arguments.executor, arguments.precision, arguments.jobs):
            if "error" in row:
                failed.append(f"{row['model']} {row['precision']} {row['executor']}: {row['error']}")
            yield row

    publish(watched(), device, arguments.out, jobs=arguments.jobs)
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
