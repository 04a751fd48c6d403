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
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.publish import publish
from benchmarks.startup.process import ChildError, Start, start
from benchmarks.startup.programs import EMPTY, IDLE, LITERT_CPU, LITERT_GPU, OPENED, TFLGPU
from benchmarks.zoo import load
from tflgpu.runtime.opencl.devices import choose

# How far tflgpu's peak may be above LiteRT's, without what the opened device takes.
MEMORY_MARGIN = 60_000_000

Starts = Mapping[str, Sequence[Start]]  # by kind


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
        starts = in_turns(kinds, rounds)
        (artifact,) = (filled / "v1" / "models").iterdir()
        disk = artifact.stat().st_size
        is_gpu = choose(device).type == "gpu"
        gpu = litert_gpu(bytecode, path, rounds) if is_gpu and batch == "1" else "skipped: no GPU, or a batch"
    return {
        "model": Path(model).stem,
        "batch": int(batch),
        "precision": precision,
        **compiling(starts),
        **first_outputs(starts, threads),
        "litert_gpu_first_output_ms": gpu,
        **memory(starts),
        **sizes(starts["warm"][0], disk),
    }


def in_turns(kinds: Mapping[str, Callable[[], Start]], rounds: int) -> Starts:
    """Starts of all kinds, behind one of each that fills the cache, and Python's cache of bytecode."""
    for once in kinds.values():
        once()
    starts: dict[str, list[Start]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, once in kinds.items():
            starts[kind].append(once())
    return starts


def compiling(starts: Starts) -> dict[str, object]:
    """The cost of ``tflgpu.compile``."""
    cold, warm = (median(s.compile for s in starts[kind]) for kind in ("cold", "warm"))
    pairs = list(zip(starts["cold"], starts.get("before", ()), strict=False))
    compared = [s.compile / b.compile for s, b in pairs]
    stored = [s.compile_and_store / b.compile_and_store for s, b in pairs]
    return {
        "cold_compile_ms": milliseconds(cold),
        "warm_compile_ms": milliseconds(warm),
        "warm_over_cold": round(warm / cold, 4),
        "cold_over_before": round(median(compared), 3) if compared else None,
        "cold_with_store_over_before": round(median(stored), 3) if stored else None,
        "cold_stages_ms": stages(starts["cold"]),
        "warm_stages_ms": stages(starts["warm"]),
    }


def first_outputs(starts: Starts, threads: int) -> dict[str, object]:
    """From before a process is made to its first output. threads: of LiteRT's CPU interpreter."""
    wall = {kind: median(s.wall for s in each) for kind, each in starts.items()}
    return {
        "cold_first_output_ms": milliseconds(wall["cold"]),
        "warm_first_output_ms": milliseconds(wall["warm"]),
        "peer": f"litert-cpu-{threads}-threads",
        "peer_first_output_ms": milliseconds(wall["litert"]),
        "ratio": round(wall["warm"] / wall["litert"], 3),
        "cpu_ms": {kind: milliseconds(median(s.facts["cpu_s"] for s in each)) for kind, each in starts.items()},
    }


def memory(starts: Starts) -> dict[str, object]:
    """The peaks of all kinds of start, and how far tflgpu's are above others."""
    peak = {kind: median(s.facts["peak_bytes"] for s in each) for kind, each in starts.items()}
    return {
        "peak_bytes": peak,
        "warm_peak_above_idle_bytes": peak["warm"] - peak["idle"],
        "warm_peak_above_opened_device_bytes": peak["warm"] - peak["opened"],
        "cold_peak_above_opened_device_bytes": peak["cold"] - peak["opened"],
        "cold_peak_above_empty_kernel_bytes": peak["cold"] - peak["empty"],
        "within_memory_bound": {
            kind: peak[kind] - peak["opened"] <= peak["litert"] + MEMORY_MARGIN for kind in ("warm", "cold")
        },
    }


def sizes(of: Start, disk: int) -> dict[str, object]:
    """disk: bytes of the cache's entry."""
    weights, arena = of.facts["weights_bytes"], of.facts["arena_bytes"]
    return {
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


def stages(starts: Sequence[Start]) -> dict[str, float]:
    """The median milliseconds of each stage of tflgpu.compile."""
    names = starts[0].facts["stages"]
    return {name: milliseconds(median(s.facts["stages"].get(name, 0.0) for s in starts)) for name in names}


def milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 2)


def rows(
    models: list[str], device: str, precisions: list[str], threads: int, rounds: int, before: Path | None
) -> Iterator[dict[str, object]]:
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
