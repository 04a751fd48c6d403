"""``tflgpu profile``.

A timeline is JSON of Chrome's trace events ("Trace Event Format", Google, 2016), which Perfetto (ui.perfetto.dev)
opens: times are in microseconds; an event of phase X has a begin and a duration, one of phase M names a process or a
thread.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

import tflgpu
from tflgpu.cli.arguments import AsJson, ModelPath, with_options
from tflgpu.cli.commands.devices import device_facts
from tflgpu.cli.console import console, note, print_json
from tflgpu.cli.measurement import random_inputs
from tflgpu.cli.progress import progress
from tflgpu.cli.tables import kernels_as_list, profile_tables
from tflgpu.model.model_source import read_bytes
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


# Version of the JSON, which docs/tools/inspect.md describes.
FORMAT = 1


@with_options()
def profile_model(
    model: ModelPath,
    options: tflgpu.Options,
    runs: Annotated[int, typer.Option(min=1, help="Runs to take the medians of.")] = 20,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a timeline for ui.perfetto.dev.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write a page for a browser: graph, memory, roofline, advice.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure every kernel of a model on the device: time, bandwidth and arithmetic.

    Three tables, as TFLite's benchmark_model prints them: the kernels in the order of a run, the slowest of them, and
    sums by type, which is what a kernel computes. Inputs are random. Bytes count what a kernel reads and writes once
    each, so that a kernel which reads from a cache can have more bandwidth than memory has.
    """
    if html is not None and options.numerics.tolerance is not None:
        raise ValueError(
            "a page shows plans made anew, without what --tolerance found; leave out --html or --tolerance"
        )
    data = read_bytes(model)  # once: the page is to be about what was compiled
    with progress(f"compiling {model.name}"):
        started = tflgpu.compile(data, options)
    with started as compiled:
        inputs = random_inputs(compiled)
        if html is not None:
            compiled.run(inputs)  # what LiteRT runs for the first time is tried in a process of its own
        with progress("measuring every kernel"):
            profile = compiled.profile(inputs, runs)
        if html is not None:
            from tflgpu.page.report_page import make_page  # with the compiler, which a warm start does not import

            html.write_text(make_page(model.name, data, compiled, inputs, profile, runs), encoding="utf-8")
    where = f"{compiled.device.name}, {compiled.precision}"
    if trace is not None:
        trace.write_text(json.dumps(timeline(profile, model.name, where)))
    if as_json:
        print_json(
            {
                "format": FORMAT,
                "model": model,
                "device": device_facts(compiled.device),
                "precision": compiled.precision,
                "seconds": profile.seconds,
                "kernels": kernels_as_list(profile),
                "trace": trace,
                "html": html,
            }
        )
        return
    console.print(f"[bold]{escape(model.name)}[/] on {escape(where)}")
    for each in profile_tables(profile):
        console.print("", each, sep="\n")
    if trace is not None:
        note(f"wrote {trace}; ui.perfetto.dev opens it")
    if html is not None:
        note(f"wrote {html}; a browser opens it")
