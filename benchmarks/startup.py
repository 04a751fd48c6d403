"""Time to the first output, cold and warm, beside LiteRT's CPU interpreter, in one run, as rows of JSON.

    python -m benchmarks.startup MODEL... [--device D] [--precision fp32,fp16] [--threads 2] [--rounds 5] [--out FILE]
        [--before CHECKOUT]

A MODEL is a .tflite file or a name of benchmarks.zoo; with ``:64`` behind it, at batch 64. Every start is a process of
its own that compiles the model and runs it once. Its wall time is from before the process is made until it reports its
first output. Rounds of all kinds of start alternate, and medians are compared. The caches of drivers and of pyopencl
are off in all of them; Python's cache of bytecode is on, as for installed packages.

A cold start compiles into an empty cache directory, a warm one reads it. ``compile_ms`` is the sum of the stages of
``tflgpu.compile`` that the cache can save: without ``device`` and ``context`` (the drivers' own start; ``context`` is
what is left of it when the model is planned or loaded), and without ``store``. With --before, cold starts of another
checkout take their turns, and their times are divided by, without ``store`` and with it.

Peak memory is VmHWM. It counts the pages of shared libraries, and OpenCL drivers have many. So the peaks of processes
that only open the device, or open it and compile an empty kernel, are given as well. A row is within the bound on
memory if tflgpu's peak is above that of the opened device by no more than LiteRT's whole peak and 60 MB. All are of the
process that runs the model: not of the one in which Intel's runtime compiles, nor is its processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from benchmarks.latency import CACHE_SWITCHES
from benchmarks.publish import publish
from benchmarks.zoo import load
from tflgpu.runtime.opencl.devices import choose

# Each program prints "ready" when it is done, then its facts.
REPORT = """
print("ready", flush=True)
import json, re, time
status = open("/proc/self/status").read()
facts["peak_bytes"] = 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status)[1])
facts["cpu_s"] = time.process_time()
print(json.dumps(facts))
"""
TFLGPU = """
import sys
import numpy as np
import tflgpu
path, batch, device, precision, cache = sys.argv[1:]
batch = int(batch) if batch != "1" else None
model = tflgpu.compile(path, tflgpu.Options(device=device, precision=precision, batch=batch, cache_dir=cache))
model.run([np.zeros(i.shape, i.dtype) for i in model.inputs])
facts = {
    "stages": model.seconds, "weights_bytes": model.report.constant_bytes, "arena_bytes": model.report.arena_bytes
}
"""
LITERT_CPU = """
import sys
import numpy as np
from ai_edge_litert.interpreter import Interpreter
path, batch, threads = sys.argv[1:]
model = Interpreter(model_path=path, num_threads=int(threads))
if batch != "1":
    for detail in model.get_input_details():
        model.resize_tensor_input(detail["index"], (int(batch), *detail["shape"][1:]))
model.allocate_tensors()
for detail in model.get_input_details():
    model.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
model.invoke()
model.get_tensor(model.get_output_details()[0]["index"])
facts = {}
"""
LITERT_GPU = """
import sys
from ai_edge_litert.compiled_model import CompiledModel
from ai_edge_litert.hardware_accelerator import HardwareAccelerator
model = CompiledModel.from_file(sys.argv[1], HardwareAccelerator.GPU)
assert model.is_fully_accelerated(), "LiteRT leaves a part of the model to the CPU"
inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
model.run_by_index(0, inputs, outputs)
facts = {}
"""
IDLE = """
import tflgpu
facts = {}
"""
OPENED = """
import sys
import tflgpu
from tflgpu.runtime.opencl.devices import choose
from tflgpu.runtime.opencl.session import open_session
session = open_session(choose(sys.argv[1]))
facts = {}
"""
EMPTY = OPENED.replace(
    "facts = {}",
    """from tflgpu.runtime.opencl.program import compile_program
compile_program(session.context, "__kernel void empty() {}")
facts = {}""",
)
# Stages of tflgpu.compile that the cache cannot save.
NOT_THE_CACHES = ("device", "context", "store")
# How far tflgpu's peak may be above LiteRT's, without what the opened device takes.
MEMORY_MARGIN = 60_000_000


class ChildError(Exception):
    """A process failed."""


@dataclass(frozen=True)
class Start:
    """One process. wall: seconds until it was ready. facts: what it printed."""

    wall: float
    facts: Mapping[str, Any]

    @property
    def compile(self) -> float:
        return sum(s for stage, s in self.facts["stages"].items() if stage not in NOT_THE_CACHES)

    @property
    def compile_and_store(self) -> float:
        return self.compile + float(self.facts["stages"].get("store", 0.0))


def environment(bytecode: Path) -> dict[str, str]:
    """The environment of all processes: no driver caches, and a separate folder for Python's bytecode."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return own | CACHE_SWITCHES | {"PYTHONPYCACHEPREFIX": str(bytecode)}


def search_path(checkout: Path) -> str:
    """PYTHONPATH with another checkout in place of this one, and with all else that it has."""
    own, given = Path(__file__).parents[1].resolve(), os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [place for place in given if place and Path(place).resolve() != own]
    return os.pathsep.join([str(checkout), *others])


def start(bytecode: Path, program: str, *arguments: object, checkout: Path | None = None) -> Start:
    """Run one process, by default of this checkout. Raises ChildError with the last line that it wrote to stderr."""
    variables = environment(bytecode) | ({"PYTHONPATH": search_path(checkout)} if checkout else {})
    command = [sys.executable, "-c", program + REPORT, *map(str, arguments)]
    with TemporaryFile("w+") as errors:
        begin = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=variables, cwd=checkout
        ) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            wall = time.perf_counter() - begin
            rest = process.stdout.read()
        if process.returncode != 0 or first != "ready\n":
            errors.seek(0)
            raise ChildError((errors.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1])
    return Start(wall, json.loads(rest))


def row(
    model: str, device: str, precision: str, threads: int, rounds: int, before: Path | None = None
) -> dict[str, object]:
    model, _, batch = model.partition(":")
    batch = batch or "1"
    with TemporaryDirectory(prefix="tflgpu-startup-") as name:
        folder = Path(name)
        path, filled, bytecode = folder / f"{Path(model).stem}.tflite", folder / "filled", folder / "bytecode"
        path.write_bytes(load(model))
        empty = (folder / f"cold-{i}" for i in count())
        kinds: dict[str, Callable[[], Start]] = {
            "cold": lambda: start(bytecode, TFLGPU, path, batch, device, precision, next(empty)),
            "warm": lambda: start(bytecode, TFLGPU, path, batch, device, precision, filled),
            "litert": lambda: start(bytecode, LITERT_CPU, path, batch, threads),
            "idle": lambda: start(bytecode, IDLE),
            "opened": lambda: start(bytecode, OPENED, device),
            "empty": lambda: start(bytecode, EMPTY, device),
        }
        if before:
            kinds["before"] = lambda: start(
                bytecode, TFLGPU, path, batch, device, precision, next(empty), checkout=before.absolute()
            )
        for once in kinds.values():  # fills the cache, and Python's cache of bytecode
            once()
        starts: dict[str, list[Start]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, once in kinds.items():
                starts[kind].append(once())
        (artifact,) = (filled / "v1" / "models").iterdir()
        disk = artifact.stat().st_size
        is_gpu = choose(device).type == "gpu"
        gpu = litert_gpu(bytecode, path, rounds) if is_gpu and batch == "1" else "skipped: no GPU, or a batch"
    facts = starts["warm"][0].facts
    weights, arena = facts["weights_bytes"], facts["arena_bytes"]
    cold, warm = (median(s.compile for s in starts[kind]) for kind in ("cold", "warm"))
    pairs = list(zip(starts["cold"], starts.get("before", ()), strict=False))
    compared = [s.compile / b.compile for s, b in pairs]
    stored = [s.compile_and_store / b.compile_and_store for s, b in pairs]
    wall = {kind: median(s.wall for s in each) for kind, each in starts.items()}
    peak = {kind: median(s.facts["peak_bytes"] for s in each) for kind, each in starts.items()}
    return {
        "model": Path(model).stem,
        "batch": int(batch),
        "precision": precision,
        "cold_compile_ms": milliseconds(cold),
        "warm_compile_ms": milliseconds(warm),
        "warm_over_cold": round(warm / cold, 4),
        "cold_over_before": round(median(compared), 3) if compared else None,
        "cold_with_store_over_before": round(median(stored), 3) if stored else None,
        "cold_stages_ms": stages(starts["cold"]),
        "warm_stages_ms": stages(starts["warm"]),
        "cold_first_output_ms": milliseconds(wall["cold"]),
        "warm_first_output_ms": milliseconds(wall["warm"]),
        "peer": f"litert-cpu-{threads}-threads",
        "peer_first_output_ms": milliseconds(wall["litert"]),
        "ratio": round(wall["warm"] / wall["litert"], 3),
        "cpu_ms": {k: milliseconds(median(s.facts["cpu_s"] for s in each)) for k, each in starts.items()},
        "litert_gpu_first_output_ms": gpu,
        "peak_bytes": peak,
        "warm_peak_above_idle_bytes": peak["warm"] - peak["idle"],
        "warm_peak_above_opened_device_bytes": peak["warm"] - peak["opened"],
        "cold_peak_above_opened_device_bytes": peak["cold"] - peak["opened"],
        "cold_peak_above_empty_kernel_bytes": peak["cold"] - peak["empty"],
        "within_memory_bound": {
            kind: peak[kind] - peak["opened"] <= peak["litert"] + MEMORY_MARGIN for kind in ("warm", "cold")
        },
        "weights_bytes": weights,
        "arena_bytes": arena,
        "disk_bytes": disk,
        "disk_over_weights": round(disk / weights, 3) if weights else None,
    }


def litert_gpu(bytecode: Path, path: Path, rounds: int) -> float | str:
    """Milliseconds of LiteRT's GPU path to the end of its first run, or the reason why it does not run."""
    try:
        return milliseconds(median(start(bytecode, LITERT_GPU, path).wall for _ in range(rounds)))
    except ChildError as error:
        return f"skipped: {error}"


def stages(starts: list[Start]) -> dict[str, float]:
    """The median milliseconds of each stage of tflgpu.compile."""
    names = starts[0].facts["stages"]
    return {name: milliseconds(median(s.facts["stages"].get(name, 0.0) for s in starts)) for name in names}


def milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 2)


def rows(
    models: list[str], device: str, precisions: list[str], threads: int, rounds: int, before: Path | None
) -> Iterator[dict[str, Any]]:
    for model in models:
        for precision in precisions:
            yield row(model, device, precision, threads, rounds, before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--before", type=Path, help="checkout of an earlier version, to compare cold starts with")
    arguments = parser.parse_args()
    device = choose(arguments.device)
    found = rows(
        arguments.models,
        arguments.device,
        arguments.precision.split(","),
        arguments.threads,
        arguments.rounds,
        arguments.before,
    )
    publish(found, device, arguments.out, driver_caches_off=True, rounds=arguments.rounds)


if __name__ == "__main__":
    main()
