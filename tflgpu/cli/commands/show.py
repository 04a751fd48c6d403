"""``tflgpu show``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.syntax import Syntax

import tflgpu
from tflgpu.cli.arguments import AsJson, DeviceName, ModelPath, PrecisionName
from tflgpu.cli.console import console, print_json
from tflgpu.runtime.opencl.devices import choose

# The functions import the stages of the compiler: verbs with a warm start must not.
if TYPE_CHECKING:
    from tflgpu.plan import Plan

Stage = Literal["model", "graph", "plan", "source", "executable"]


def show_model(
    model: ModelPath,
    stage: Annotated[Stage, typer.Option(help="How far down the road; model and graph need no device.")] = "graph",
    after: Annotated[
        str | None,
        typer.Option(
            metavar="PASS",
            help="Of the stage graph: stop after this pass; lower is the graph before the first one.",
            show_default="the last one",
        ),
    ] = None,
    device: DeviceName = "auto",
    precision: PrecisionName = "auto",
    as_json: AsJson = False,
) -> None:
    """Show what a model becomes: the file as read, its graph after the passes or one of them, the plan for a device,
    the OpenCL source, or the buffers and launches."""
    options = tflgpu.Options(device=device, precision=precision)
    if stage == "graph":
        _show_graph(model, after, as_json)
    elif after is not None:
        raise ValueError(f"--after goes with the stage graph, not {stage}")
    else:
        {"model": _show_file, "plan": _show_plan, "source": _show_source, "executable": _show_executable}[stage](
            model, options, as_json
        )


def _show_file(path: Path, _options: tflgpu.Options, as_json: bool) -> None:
    from tflgpu.cli.stages.model_text import model_as_dict, model_lines
    from tflgpu.model.reader import read_model

    model = read_model(path.read_bytes())
    _print(as_json, lambda: model_as_dict(model), lambda: model_lines(model))


def _show_graph(path: Path, after: str | None, as_json: bool) -> None:
    from tflgpu.cli.stages.graph_text import graph_as_dict, graph_lines
    from tflgpu.frontend.lower import lower
    from tflgpu.model.reader import read_model
    from tflgpu.passes import PASSES, optimizing

    last = after or list(PASSES)[-1]
    if last not in ("lower", *PASSES):
        raise ValueError(f"there is no pass {last!r}; in their order they are {', '.join(('lower', *PASSES))}")
    lowered = lower(read_model(path.read_bytes()))
    if not lowered.is_whole:
        raise tflgpu.UnsupportedError(lowered.cuts)
    graph = next(graph for name, graph in optimizing(lowered.graph) if name == last)
    _print(as_json, lambda: graph_as_dict(graph), lambda: graph_lines(graph, [e.code for e in lowered.entries]))


def _show_plan(model: Path, options: tflgpu.Options, as_json: bool) -> None:
    from tflgpu.cli.stages.plan_text import plan_as_dict, plan_lines

    plan, codes = _planned(model, options)
    _print(as_json, lambda: plan_as_dict(plan), lambda: plan_lines(plan, codes))


def _show_source(model: Path, options: tflgpu.Options, as_json: bool) -> None:
    from tflgpu.codegen.render import render

    source = render(_planned(model, options)[0])
    if as_json:
        functions = {f.name: f.source for f in source.functions}
        print_json({"prelude": source.prelude, "functions": functions, "launches": source.names})
    elif console.is_terminal:
        console.print(Syntax(source.text, "c", theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        console.out(source.text, highlight=False)


def _show_executable(model: Path, options: tflgpu.Options, as_json: bool) -> None:
    from tflgpu.cli.stages.executable_text import executable_as_dict, executable_lines
    from tflgpu.codegen.link import link
    from tflgpu.codegen.render import render

    plan, _ = _planned(model, options)
    executable = link(plan, render(plan).names)
    _print(as_json, lambda: executable_as_dict(executable), lambda: executable_lines(executable))


def _planned(model: Path, options: tflgpu.Options) -> tuple[Plan, list[str]]:
    """The plan for a device, and the names of the model's operators."""
    from tflgpu.compiler import plan_model

    lowered, plan = plan_model(model.read_bytes(), options, choose(options.device).target(options))
    return plan, [entry.code for entry in lowered.entries]


def _print(as_json: bool, data: Callable[[], dict[str, Any]], lines: Callable[[], Sequence[str]]) -> None:
    """JSON, or lines with markup. Lines are never broken: a listing is for grep and for wide windows too."""
    if as_json:
        print_json(data())
        return
    for line in lines():
        console.print(line, soft_wrap=True)
