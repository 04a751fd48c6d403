"""The rows of the table: where a type of model runs, how far it is from LiteRT, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

import tflgpu
from tflgpu.cli.measurement import measure
from tflgpu.evaluate.accuracy import real
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.inputs import InputReader
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.options import Precision

RUNS, MIN_SECONDS = 100, 1.0  # of each engine, in turns

Array = np.ndarray


def read_photos(paths: Sequence[Path], model: bytes, infos: Sequence[TensorInfo]) -> list[Array]:
    """Each photo as the only input of a model takes it: -1..1, in the input's element type."""
    reader = InputReader(model, infos, mean=127.5, std=127.5)
    return [reader.read([path])[0] for path in paths]


def rows(
    models: Mapping[str, bytes], photos: Sequence[Path], device: str, precisions: Sequence[Precision], threads: int
) -> Iterator[dict[str, object]]:
    """One for each type and precision. Errors are of a probability, the largest over all classes and photos.

    Those to float32 are None for a type with a training of its own.
    """
    float32: list[Array] = []
    for kind, model in models.items():
        litert = LiteRT(model, threads)
        with ExitStack() as stack:
            compiled = {
                precision: stack.enter_context(
                    tflgpu.compile(model, tflgpu.Options(precision=precision, device=device, cache="off"))
                )
                for precision in precisions
            }
            first = compiled[precisions[0]]
            (output,) = first.outputs
            inputs = read_photos(photos, model, first.inputs)
            expected = [real(litert.run([x])[0], output.quantization) for x in inputs]
            float32 = float32 or expected
            comparable = "training" not in kind
            engines: dict[str, Callable[[], object]] = {p: partial(c.run, inputs[0]) for p, c in compiled.items()}
            engines["LiteRT"] = partial(litert.run, [inputs[0]])
            latency = measure(engines, RUNS, MIN_SECONDS)
            for precision, own in compiled.items():
                got = [real(own.run(x)[output.name], output.quantization) for x in inputs]
                error = _largest_error(got, expected)
                yield {
                    "type": kind,
                    "precision": precision,
                    "file_bytes": len(model),
                    "input": first.inputs[0].dtype,
                    "output": output.dtype,
                    "operators": len(own.report.operators),
                    "cpu_operators": sum(o.device != "device" for o in own.report.operators),
                    "kernels": own.report.kernels,
                    "photos": len(photos),
                    "max_error": error,
                    "error_in_steps": round(error / output.quantization.scale[0], 3) if output.quantization else None,
                    "same_top1": sum(int(g.argmax() == e.argmax()) for g, e in zip(got, expected, strict=True)),
                    "error_to_float32": _largest_error(got, float32) if comparable else None,
                    "litert_error_to_float32": _largest_error(expected, float32) if comparable else None,
                    "tflgpu_ms": round(1e3 * latency[precision].median, 4),
                    "litert_ms": round(1e3 * latency["LiteRT"].median, 4),
                    "ratio": round(latency[precision].median / latency["LiteRT"].median, 3),
                }


def _largest_error(got: Sequence[Array], expected: Sequence[Array]) -> float:
    return max(float(np.abs(g.reshape(e.shape) - e).max()) for g, e in zip(got, expected, strict=True))
