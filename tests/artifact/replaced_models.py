"""A model file that is replaced while it compiles: ``python -m tests.artifact.replaced_models COMPILES``.

Another thread writes a new model to the same path every 20 ms, by renaming and by overwriting in turn. Every answer
must be that of one of the models, and afterwards every model must get its own answer. Prints what was wrong.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np

import tflgpu
from tests.safety.models import scaled

SECONDS = 0.02

X = np.ones((1, 2, 2, 4), np.float32)


def factor_of(model: tflgpu.CompiledModel) -> float:
    """The only number that all results have in common; NaN if there is none."""
    results = np.unique(model.run(X)["y"])
    return float(results[0]) if results.size == 1 else float("nan")


def replace(path: Path, end: threading.Event, seconds: float, written: list[int]) -> None:
    for number in itertools.count(1):
        target = path if number % 2 else path.with_suffix(".new")
        written.append(number)
        target.write_bytes(scaled(float(number)))
        target.replace(path)
        if end.wait(seconds):
            return


def faults(folder: Path, compiles: int, seconds: float = SECONDS) -> tuple[list[str], int, int]:
    """Wrong answers while a file was replaced and afterwards; how many models were compiled, and how many written.

    compiles: of whole files, at least; until two of them were different.
    """
    path, end, found, seen = folder / "model.tflite", threading.Event(), [], set()
    options = tflgpu.Options(precision="fp32", cache_files=tflgpu.CacheFiles(path=folder / "cache"))
    written: list[int] = [0]
    path.write_bytes(scaled(0.0))
    thread = threading.Thread(target=replace, args=(path, end, seconds, written))
    thread.start()
    try:
        number = 0
        while number < compiles or len(seen) < 2:
            try:
                factor = factor_of(tflgpu.compile(path, options))
            except tflgpu.ModelError:  # half of it was written
                continue
            number += 1
            seen.add(factor)
            if factor not in written:
                found.append(f"compile {number} answered {factor}")
    finally:
        end.set()
        thread.join()
    for factor in written:
        answer = factor_of(tflgpu.compile(scaled(float(factor)), options))
        if answer != factor:
            found.append(f"the cache answers {answer} for {factor}")
    return found, len(seen), len(written)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        results, models, files = faults(Path(place), int(sys.argv[1]))
    print(*results, f"{len(results)} wrong answers; {models} of {files} models were compiled", sep="\n")
    sys.exit(bool(results))
