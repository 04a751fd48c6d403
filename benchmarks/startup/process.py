"""One start: a process, its time until it was ready, and what it printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from benchmarks.latency import CACHE_SWITCHES
from benchmarks.startup.programs import REPORT

# Stages of tflgpu.compile that the cache cannot save.
NOT_THE_CACHES = ("device", "context", "store")


class ChildError(Exception):
    """A process failed."""


@dataclass(frozen=True)
class Start:
    """One process. wall: seconds until it was ready. facts: what it printed."""

    wall: float
    facts: Mapping[str, Any]

    @property
    def compile(self) -> float:
        return sum(float(s) for stage, s in self.facts["stages"].items() if stage not in NOT_THE_CACHES)

    @property
    def compile_and_store(self) -> float:
        return self.compile + float(self.facts["stages"].get("store", 0.0))


def environment(bytecode: Path) -> dict[str, str]:
    """The environment of all processes: no driver caches, and a separate folder for Python's bytecode."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return own | CACHE_SWITCHES | {"PYTHONPYCACHEPREFIX": str(bytecode)}


def search_path(checkout: Path) -> str:
    """PYTHONPATH with another checkout in place of this one, and with all else that it has."""
    own, given = Path(__file__).parents[2].resolve(), os.environ.get("PYTHONPATH", "").split(os.pathsep)
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
