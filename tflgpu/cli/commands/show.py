"""``tflgpu show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.syntax import Syntax

import tflgpu
from tflgpu.cli.arguments import AsJson, DeviceName, ModelPath, PrecisionName
from tflgpu.cli.console import console, print_json
from tflgpu.cli.show_graph import graph_as_dict, graph_lines
from tflgpu.cli.show_plan import plan_as_dict, plan_lines
from tflgpu.runtime.opencl.devices import choose

Stage = Literal["graph", "plan", "source"]


def show_model(
    model: ModelPath,
    stage: Annotated[Stage, typer.Option(help="How far down the road; graph needs no device.")] = "graph",
    device: DeviceName = "auto",
    precision: PrecisionName = "auto",
    as_json: AsJson = False,
) -> None:
    """Show what a model becomes: its graph after the passes, the plan for a device, or the OpenCL source."""
    options = tflgpu.Options(device=device, precision=precision)
    {"graph": _show_graph, "plan": _show_plan, "source": _show_source}[stage](model, options, as_json)


def _show_graph(model: Path, _options: tflgpu.Options, as_json: bool) -> None:
    from tflgpu.frontend.lower import lower
    from tflgpu.model.reader import read_model
    from tflgpu.passes import optimize

    lowered = lower(read_model(model.read_bytes()))
    if lowered.obstacles:
        raise tflgpu.UnsupportedError(lowered.obstacles)
    graph = optimize(lowered.graph)
    codes = [e.code for e in lowered.entries]
    if as_json:
        print_json(graph_as_dict(graph))
    else:
        _print_lines(graph_lines(graph, codes))


def _show_plan(model: Path, options: tflgpu.Options, as_json: bool) -> None:
    from tflgpu.compiler import plan_model

    lowered, plan = plan_model(model.read_bytes(), options, choose(options.device).target(options))
    if as_json:
        print_json(plan_as_dict(plan))
    else:
        _print_lines(plan_lines(plan, [e.code for e in lowered.entries]))


def _show_source(model: Path, options: tflgpu.Options, as_json: bool) -> None:
    from tflgpu.codegen.render import render
    from tflgpu.compiler import plan_model

    _, plan = plan_model(model.read_bytes(), options, choose(options.device).target(options))
    source = render(plan)
    if as_json:
        functions = {f.name: f.source for f in source.functions}
        print_json({"prelude": source.prelude, "functions": functions, "launches": source.names})
    elif console.is_terminal:
        console.print(Syntax(source.text, "c", theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        console.out(source.text, highlight=False)


def _print_lines(lines: list[str]) -> None:
    """Lines with markup, never broken: a listing is for grep and for wide windows too."""
    for line in lines:
        console.print(line, soft_wrap=True)
