"""``tflgpu devices``."""

from __future__ import annotations

from typing import Any

from rich.filesize import decimal
from rich.markup import escape

import tflgpu
from tflgpu.cli.arguments import AsJson
from tflgpu.cli.console import console, print_json, table
from tflgpu.runtime.opencl.devices import ADVICE, Device


def list_devices(as_json: AsJson = False) -> None:
    """List the OpenCL devices, the preferred one first."""
    found = tflgpu.devices()
    if not found:
        raise tflgpu.DeviceError(f"no OpenCL device was found; {ADVICE}")
    if as_json:
        print_json([device_facts(d) for d in found])
        return
    listing = table("#", "name", "platform", "type", "OpenCL", "memory", "fp16", "executor", right=("#", "memory"))
    for d in found:
        fp16 = "yes" if d.limits.half_arithmetic else "no"
        facts = (d.name, d.platform, d.type, _opencl_version(d.version), decimal(d.memory), fp16, d.executor)
        listing.add_row(str(d.index), *map(escape, facts), style="bold" if d.index == 0 else "")
    console.print(listing)


def device_facts(device: Device) -> dict[str, Any]:
    """The fields of a device that are data."""
    return device.as_dict()


def _opencl_version(text: str) -> str:
    """``"OpenCL 3.0 <whatever the vendor adds>"`` -> ``"3.0"``, by the format that the OpenCL specification fixes."""
    return text.split()[1] if text.startswith("OpenCL ") else text
