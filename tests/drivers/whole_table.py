"""Everything on every device: ``python -m tests.drivers.whole_table FILE [DEVICE...] [--drivers FOLDER]``.

All rows of the op table, alone and with a chain to fuse, all templates and real models, with both families of kernels,
in fp32, fp16 and, where a device has it, fp16_fast. The devices are Intel's runtime, PoCL of PyPI, those that
``tests/support/limited_devices.py`` simulates, and the drivers that ``debian.py`` has unpacked into a folder; a DEVICE
is a part of a name.

What is found is appended to FILE, a line of JSON for each program. Who runs it again goes on where it ended. The order
is random, but the same each time, so that ``--most`` is a sample of the whole. A process that crashes, or takes ten
minutes for a program, has failed there, and another one goes on. ``--counts`` runs nothing: it prints how many programs
of FILE are right, of how many, and what is wrong with the others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tflgpu
from tests.drivers.check_device import outcome
from tests.drivers.checks import whole_table
from tests.drivers.debian import DRIVERS
from tests.quick import RUNTIMES
from tests.support.limited_devices import SIMULATIONS, limited
from tflgpu.options import CacheMode

MOST_SECONDS = 600
SYSTEM = dict(zip(("Intel", "PoCL of PyPI"), RUNTIMES, strict=True))
UNPACKED = {str(driver): driver for driver in DRIVERS}
KEY = ("device", "subject", "kernels", "precision")


@contextmanager
def opened(name: str) -> Iterator[tuple[tflgpu.Device, CacheMode]]:
    """A device, and how programs for it are cached: simulated ones share what they compile, but for other languages."""
    if simulation := SIMULATIONS.get(name):
        with limited(RUNTIMES[0], simulation) as device:
            yield device, "off" if "opencl_c" in simulation.limits else "readwrite"
    else:
        platform = SYSTEM[name] if name in SYSTEM else UNPACKED[name].platform
        versions = UNPACKED[name].tried if name in UNPACKED else ("",)
        yield next(d for d in tflgpu.devices() if d.platform == platform and d.driver.startswith(versions)), "off"


def results(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def work(name: str, file: Path, only: str, most: int) -> None:
    """Print each program before it runs, and what came of it; of the first ``most`` subjects."""
    warnings.simplefilter("ignore")
    done = {tuple(result[key] for key in KEY) for result in results(file)}
    subjects = whole_table()
    random.Random(0).shuffle(subjects)
    subjects = [subject for subject in subjects[:most] if re.search(only, subject.name)]
    with opened(name) as (device, cache):
        for subject in subjects:
            for program in subject.programs(device):
                key = (name, subject.name, *program)
                if key not in done:
                    result = dict(zip(KEY, key, strict=True)) | {"driver": device.driver}
                    print(json.dumps(result), flush=True)
                    signal.alarm(MOST_SECONDS)  # nobody handles it: it ends the process, whatever the driver is at
                    begin = time.process_time()
                    failure = outcome(subject, program, device.index, cache)
                    seconds = round(time.process_time() - begin, 3)
                    print(json.dumps(result | {"seconds": seconds, "failure": failure[:600]}), flush=True)


def run(name: str, file: Path, folder: Path, options: Sequence[str]) -> None:
    """Have everything done by processes of their own, as many as crash."""
    command = [sys.executable, "-m", "tests.drivers.whole_table", str(file), name, "--work", *options]
    environment = dict(os.environ)
    if driver := UNPACKED.get(name):
        command, environment = driver.seen_by(folder, command)
    environment["TFLGPU_CACHE_DIR"] = str(file.with_suffix(".cache"))
    crashed = True
    while crashed:
        begun = {}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                if line.startswith("{"):
                    begun = json.loads(line)
                    if "failure" in begun:
                        record(file, begun)
        crashed = process.returncode < 0 and "failure" not in begun
        if crashed:
            record(file, begun | {"failure": f"ended by {signal.Signals(-process.returncode).name}"})


def record(file: Path, result: dict[str, Any]) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps(result) + "\n")


def counts(found: list[dict[str, Any]]) -> dict[str, Any]:
    """How many programs are right, of how many that were tried and of how many in all; and what is wrong."""
    subjects = whole_table()
    in_half = sum(subject.in_half for subject in subjects)
    devices: dict[str, dict[str, Any]] = {}
    for result in found:
        device = devices.setdefault(result["device"], {"driver": result["driver"], "programs": {}})
        whole = in_half if result["precision"] == "fp16_fast" else len(subjects)
        way = f"{result['kernels']} {result['precision']}"
        numbers = device["programs"].setdefault(way, {"right": 0, "tried": 0, "whole": whole})
        numbers["tried"] += 1
        numbers["right"] += not result["failure"]
    return {"devices": devices, "wrong": [result for result in found if result["failure"]]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("devices", nargs="*", default=[""])
    parser.add_argument("--drivers", type=Path, default=Path("/nowhere"))
    parser.add_argument("--only", default="", help="a regular expression that names fit")
    parser.add_argument("--most", type=int, default=10_000, help="so many rows, templates and models, the first ones")
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.counts:
        print(json.dumps(counts(results(asked.file)), indent=1))
    elif asked.work:
        work(asked.devices[0], asked.file, asked.only, asked.most)
    else:
        for name in (*SYSTEM, *SIMULATIONS, *UNPACKED):
            is_here = name not in UNPACKED or UNPACKED[name].is_in(asked.drivers)
            if is_here and any(part in name for part in asked.devices):
                run(name, asked.file, asked.drivers, ["--only", asked.only, "--most", str(asked.most)])


if __name__ == "__main__":
    main()
