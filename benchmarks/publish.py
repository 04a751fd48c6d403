"""Rows of measurements -> JSON lines on the terminal, and a file that also says how they were measured."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import tflgpu

PACKAGES = ("pyopencl", "numpy", "ai-edge-litert")


def publish(
    rows: Iterable[Mapping[str, object]],
    device: tflgpu.Device,
    out: Path | None,
    *,
    packages: Sequence[str] = PACKAGES,
    **facts: object,
) -> None:
    """Print each row as it comes, and write ``out`` anew with it, so that a benchmark that is cut off leaves its rows.

    packages: whose versions are noted, as far as they are installed. facts: further facts, beside device, driver and
        command.
    """
    started = sys.modules["__main__"].__spec__  # None if it was not by `python -m`
    module = started.name.removesuffix(".__main__") if started else sys.argv[0]
    result = {
        "date": date.today().isoformat(),
        "device": device.name,
        "platform": device.platform,
        "driver": device.driver,
        "versions": dict(_versions(packages)) | {"tflgpu": tflgpu.__version__},
        **facts,
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
    }
    found: list[Mapping[str, object]] = []
    for row in rows:
        print(json.dumps(row), flush=True)
        found.append(row)
        if out:
            out.write_text(json.dumps(result | {"rows": found}, indent=1) + "\n")


def _versions(packages: Sequence[str]) -> Iterator[tuple[str, str]]:
    for package in packages:
        with suppress(PackageNotFoundError):
            yield package, version(package)
