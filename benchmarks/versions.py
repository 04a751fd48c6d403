"""This version beside another checkout: times of runs, starts from the cache, and cold compilations.

    python -m benchmarks.versions CHECKOUT MODEL... [--device D] [--precision fp32] [--rounds 3] [--jobs 1] [--out FILE]

Every measurement is a process of its own with the drivers' caches off. Each model is compiled cold once by each
version, ``jobs`` at a time, into a cache of the version. Then the versions take turns, alone: a process starts from
that cache and runs the model for a while, on a GPU with arrays on the device. The lowest of the medians of a version's
processes count, as other work only adds to them. Ratios are this version's time over that of the other one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice, product
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory

from benchmarks.publish import publish
from benchmarks.startup.process import ChildError, Start, start
from tflgpu.runtime.opencl.devices import choose

SECONDS = 0.5  # of runs in each process

OWN = Path(__file__).parents[1]

PROGRAM = """
import sys, time
begun = time.perf_counter()
import numpy as np
import pyopencl.array as cl_array
import tflgpu
path, device, precision, cache, seconds = sys.argv[1:]
options = tflgpu.Options(device=device, precision=precision, cache_files=tflgpu.CacheFiles(path=cache))
model = tflgpu.compile(path, options)
compiled = time.perf_counter()
random = np.random.default_rng(0)
inputs = [
    random.standard_normal(i.shape).astype(i.dtype) if i.dtype.startswith("float") else np.zeros(i.shape, i.dtype)
    for i in model.inputs
]
outputs = None
if model.device.type == "gpu":
    inputs = [cl_array.to_device(model.queue, array) for array in inputs]
    outputs = {o.name: cl_array.empty(model.queue, o.shape, o.dtype) for o in model.outputs}
times = []
end = time.perf_counter() + float(seconds)
while len(times) < 10 or time.perf_counter() < end:
    before = time.perf_counter()
    model.run(inputs, outputs)
    times.append(time.perf_counter() - before)
facts = {
    "run": float(np.median(times)),
    "start": compiled - begun,
    "cold": sum(s for stage, s in model.seconds.items() if stage not in ("device", "context")),
}
"""


class Versions:
    """Two checkouts, and the cache of each."""

    def __init__(self, before: Path, folder: Path, device: str, precision: str) -> None:
        self._checkouts = {"before": before.absolute(), "now": OWN}
        self._folder, self._how = folder, (device, precision)

    def measured(self, version: str, model: Path, seconds: float) -> Mapping[str, float]:
        """Seconds of a run, of a start and of a cold compilation, by one process of a version."""
        cache, checkout = self._folder / version, self._checkouts[version]
        found: Start = start(
            self._folder / "bytecode", PROGRAM, model.absolute(), *self._how, cache, seconds, checkout=checkout
        )
        return found.facts


def rows(versions: Versions, models: Sequence[Path], rounds: int, jobs: int) -> Iterator[dict[str, object]]:
    """A row for each model, and one with the means."""
    pairs = list(product(models, ("before", "now")))

    def cold(pair: tuple[Path, str]) -> float | None:
        model, version = pair
        try:
            return versions.measured(version, model, 0.0)["cold"]
        except ChildError:
            return None

    with ThreadPoolExecutor(jobs) as pool:
        compiled = dict(zip(pairs, pool.map(cold, pairs), strict=True))
    ratios: dict[str, list[float]] = {"run": [], "start": [], "cold": []}
    for model in models:
        times = {"cold": {version: compiled[model, version] for version in ("before", "now")}}
        if None in times["cold"].values():
            yield {"model": model.stem, "failed": [v for v, seconds in times["cold"].items() if seconds is None]}
            continue
        turns = [
            {version: versions.measured(version, model, SECONDS) for version in order}
            for order in islice(cycle((("before", "now"), ("now", "before"))), rounds)
        ]
        for name in ("run", "start"):
            times[name] = {version: min(turn[version][name] for turn in turns) for version in ("before", "now")}
        row: dict[str, object] = {"model": model.stem}
        for name, each in times.items():
            before, now = each["before"] or 0.0, each["now"] or 0.0
            ratios[name].append(now / before)
            row |= {f"{name}_before_s": round(before, 7), f"{name}_s": round(now, 7), f"{name}_ratio": now / before}
        yield row
    for name, found in ratios.items():
        if found:
            yield {"of": name, "geometric_mean": round(geometric_mean(found), 4), "worst": round(max(found), 4)}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path, metavar="CHECKOUT")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="cold compilations at the same time")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="tflgpu-versions-") as name:
        versions = Versions(given.before, Path(name), given.device, given.precision)
        found = rows(versions, given.models, given.rounds, given.jobs)
        publish(found, choose(given.device), given.out, precision=given.precision, driver_caches_off=True)


if __name__ == "__main__":
    main()
