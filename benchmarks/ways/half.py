"""How far fp16 takes models from LiteRT in float, and how far their weights in half alone would, as rows of JSON.

    python -m benchmarks.ways.half MODEL... [--device D] [--half-check auto] [--out FILE]

A MODEL that ends in .tflite.xz is a network without its weights, which ``redraw.py`` beside it draws. Each is compiled
in a process of its own, by default as a user would have it: with the check of half precision and its repair. ``error``
is the largest of all outputs as a part of the range of LiteRT's values and zero, on a picture or signal and on normal
numbers that the check does not use. Outputs of operators that choose are compared as sets, integers by more than a
step. ``weights`` is the error of LiteRT itself with its matrices rounded to half.
"""

from __future__ import annotations

import argparse
import runpy
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

import tflgpu
from benchmarks.publish import publish
from tflgpu.cli.own_processes import in_own_process
from tflgpu.evaluate.litert_peer import LiteRT
from tflgpu.measure.half_check import CHOOSE
from tflgpu.measure.mixed_precision.generated_inputs import small_picture, with_rounded_weights
from tflgpu.measure.mixed_precision.storage_search import OutputErrors, error_of_chosen, error_of_integers
from tflgpu.options import HalfCheck
from tflgpu.runtime.opencl.devices import choose

Array = NDArray[Any]

SEED = 58


def content(path: Path) -> bytes:
    """The bytes of a model, whose weights are drawn if the file has none."""
    data = path.read_bytes()
    if path.suffix != ".xz":
        return data
    drawn: bytes = runpy.run_path(str(path.parent / "redraw.py"))["redraw"](data)
    return drawn


def drawn_inputs(infos: Sequence[tflgpu.TensorInfo]) -> list[list[Array]]:
    random = np.random.default_rng(SEED)
    picture = [small_picture(info) for info in infos]
    normal = [
        random.standard_normal(info.shape, np.float32).astype(info.dtype) if np.dtype(info.dtype).kind == "f" else x
        for info, x in zip(infos, picture, strict=True)
    ]
    return [picture, normal]


def answers(model: bytes, inputs: Sequence[list[Array]]) -> list[list[Array]]:
    """Return LiteRT's outputs, one run after the other."""
    peer = LiteRT(model, None)
    return [[np.array(output) for output in peer.run(each)] for each in inputs]


def error(compiled: tflgpu.CompiledModel, rights: list[list[Array]], founds: list[list[Array]]) -> float:
    """The largest of all outputs on all inputs."""
    infos = compiled.outputs
    chosen = {name for o in compiled.report.operators if o.code in CHOOSE for name in o.outputs}
    floats = [n for n, i in enumerate(infos) if i.name not in chosen and (i.dtype == "float32" or i.quantization)]
    measured = OutputErrors([infos[n] for n in floats], [[r[n] for n in floats] for r in rights], range(len(rights)))
    largest = [e for k, found in enumerate(founds) for e in measured.of(k, [found[n] for n in floats])]
    for right, found in zip(rights, founds, strict=True):
        for n in set(range(len(infos))).difference(floats):
            compare = error_of_chosen if infos[n].name in chosen else error_of_integers
            largest.append(compare(right[n], found[n]))
    return float(f"{max(largest, default=0.0):.2g}")


def measured(path: Path, device: int, half_check: HalfCheck) -> dict[str, object]:
    """The row of a model. Raises the errors of compiling and running it."""
    warnings.simplefilter("ignore")
    data = content(path)
    with tempfile.TemporaryDirectory() as cache:
        options = tflgpu.Options(
            device=device,
            precision="fp16",
            numerics=tflgpu.Numerics(half_check=half_check),
            cache_files=tflgpu.CacheFiles(path=cache),
        )
        with tflgpu.compile(data, options) as compiled:
            inputs = drawn_inputs(compiled.inputs)
            founds = [list(compiled.run(each).values()) for each in inputs]
            report, half, floats = compiled.report, compiled.report.half, compiled.report.floats
            row: dict[str, object] = {"kernels": report.kernels}
            rights = answers(data, inputs)
            row["error"] = error(compiled, rights, founds)
            weights = with_rounded_weights(data)
            if weights != data:
                row["weights"] = error(compiled, rights, answers(weights, inputs))
    if floats is not None:
        row |= {"kept": len(floats.tensors), "kept_share": round(floats.bytes / max(floats.total_bytes, 1), 4)}
    if half is not None and half.unchecked:
        row["unchecked"] = half.unchecked
    elif half is not None:
        row |= {"checked": half.error, "repaired": half.repaired, "warned": bool(half.warning)}
    return row


def rows(models: Sequence[Path], device: int, half_check: HalfCheck) -> Iterator[dict[str, object]]:
    for path in models:
        row: dict[str, object] = {"model": path.name.partition(".tflite")[0]}
        try:
            yield row | in_own_process(measured, path, device, half_check).value
        except (tflgpu.TflgpuError, OSError, ValueError) as failure:
            yield row | {"failed": f"{type(failure).__name__}: {failure}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--half-check", choices=get_args(HalfCheck), default="auto")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = choose(arguments.device)
    publish(rows(arguments.models, device.index, arguments.half_check), device, arguments.out)


if __name__ == "__main__":
    main()
