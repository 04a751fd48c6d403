"""Check one device: ``python -m tests.drivers.check_device PLATFORM VERSIONS``, VERSIONS as in 6.0,7.1.

A row of every second operator, with one family of kernels in one precision, and small real models. Prints what is
wrong, and the number of checks. The exit code is 1 if anything is, and 2 if the platform has no device with a driver of
these versions. ``whole_table.py`` has everything.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from dataclasses import replace

import tflgpu
from tests.drivers.checks import Program, Subject, sample
from tflgpu.options import CacheMode, options_of

WRONG_VERSION = 2
# float64 and int64 are options of OpenCL.
LACKING = "does not compute with"
REFUSED = re.compile("LiteRT says: .* only supports|LiteRT's interpreter refuses")


def outcome(subject: Subject, program: Program, device: int, cache: CacheMode = "off") -> str:
    """The fault that is found, or an empty text. Models with elements that a device lacks are to be right by way of the
    CPU, or refused with LiteRT's words where it lacks them, too.
    """
    on_cpu = False

    def compiled(model: bytes) -> tflgpu.CompiledModel:
        nonlocal on_cpu
        options = options_of(program._asdict() | {"device": device, "fallback": "forbid", "cache": cache})
        try:
            return tflgpu.compile(model, options)
        except tflgpu.UnsupportedError as error:
            on_cpu = LACKING in str(error)
            if not on_cpu:
                raise
            return tflgpu.compile(model, replace(options, fallback="auto"))

    try:
        subject.check(compiled, program.precision)
    except Exception as error:
        if on_cpu and isinstance(error, (tflgpu.UnsupportedError, ValueError)) and REFUSED.search(str(error)):
            return ""
        return f"{type(error).__module__}.{type(error).__name__}: {error}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("platform")
    parser.add_argument("versions", type=lambda text: tuple(text.split(",")))
    wanted = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {d.driver: d.index for d in tflgpu.devices() if d.platform == wanted.platform}
    fitting = [index for driver, index in found.items() if driver.startswith(wanted.versions)]
    if not fitting:
        print(f"{wanted.platform} has no driver of version {wanted.versions}, but {list(found)}")
        return WRONG_VERSION
    checks, wrong = 0, 0
    for subject, program in sample():
        checks += 1
        if fault := outcome(subject, program, fitting[0]):
            wrong += 1
            print(f"{subject.name}, {program}: {fault}", flush=True)
    print(f"{checks} checks, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
