"""An executable as text: buffers by number, and every launch with its arguments."""

from __future__ import annotations

from typing import Any

from tflgpu.artifact.executable import Binding, Executable
from tflgpu.cli.console import picked


def executable_lines(executable: Executable) -> list[str]:
    """Lines of markup that show buffers, launches and bindings."""
    lines = [
        f"[bold]buffer {number}[/]  {buffer.bytes:,} bytes{' of constants' if buffer.data is not None else ''}"
        for number, buffer in enumerate(executable.buffers)
    ]
    lines += ["", *(_boundary("input", binding) for binding in executable.inputs)]
    for number, launch in enumerate(executable.launches):
        grid = f"{launch.groups:,} x {launch.local_size} work-items, barrier interval {launch.interval}"
        lines += ["", f"[dim]{number:>4}[/]   [cyan]{launch.function}[/]  {grid}"]
        lines.append("       " + ", ".join(f"buffer {slot.buffer} + {slot.offset:,}" for slot in launch.arguments))
    return [*lines, "", *(_boundary("output", binding) for binding in executable.outputs)]


def executable_as_dict(executable: Executable) -> dict[str, Any]:
    """Plain data for JSON; constants are described, their bytes left out."""
    return {
        "buffers": [{"bytes": b.bytes, "constant": b.data is not None} for b in executable.buffers],
        "launches": [
            {
                **picked(launch, "function", "groups", "local_size"),
                "arguments": [{"buffer": slot.buffer, "offset": slot.offset} for slot in launch.arguments],
                **picked(launch, "operators", "macs", "bytes"),
                "level": launch.interval,
            }
            for launch in executable.launches
        ],
        "inputs": [_binding_as_dict(binding) for binding in executable.inputs],
        "outputs": [_binding_as_dict(binding) for binding in executable.outputs],
    }


def _binding_as_dict(binding: Binding) -> dict[str, Any]:
    return picked(binding, "buffer", "offset", "shape", "element", "dtype")


def _boundary(side: str, binding: Binding) -> str:
    shape = "x".join(map(str, binding.shape)) or "scalar"
    place = f"buffer {binding.buffer} + {binding.offset:,} bytes"
    return f"{side} [bold]{shape} {binding.dtype}[/]  {place}, as {binding.element}"
