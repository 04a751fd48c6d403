"""A profile as a timeline: the JSON of Chrome's trace events, which Perfetto (ui.perfetto.dev) opens.

The format is described in "Trace Event Format", Google, 2016: times are in microseconds; an event of phase X has a
begin and a duration, one of phase M names a process or a thread.
"""

from __future__ import annotations

from typing import Any

from tflgpu.report.profile import KernelTime, Profile

PROCESS = {"pid": 1, "tid": 1}


def timeline(profile: Profile, process: str, thread: str) -> dict[str, Any]:
    """One event a kernel, in one row under two headings: ``process``, the model, and ``thread``, what ran it."""
    names = (("process_name", process), ("thread_name", thread))
    headings = [{"ph": "M", "name": kind, "args": {"name": name}} | PROCESS for kind, name in names]
    events = [_event(number, kernel) | PROCESS for number, kernel in enumerate(profile.kernels)]
    return {"displayTimeUnit": "ns", "traceEvents": headings + events}


def _event(number: int, kernel: KernelTime) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": kernel.title,
        "cat": "kernel",
        "ts": 1e6 * kernel.begin,
        "dur": 1e6 * kernel.seconds,
        "args": {
            "number": number,
            "kernel": kernel.kernel,
            "operators": list(kernel.operators),
            "level": kernel.level,
            "bytes": kernel.bytes,
            "macs": kernel.macs,
            "GB/s": kernel.gb_per_second,
            "GFLOP/s": kernel.gflops,
        },
    }
