"""``tflgpu show``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.text import Text

import tflgpu
from tflgpu.cli.arguments import AsJson, ModelPath, with_options
from tflgpu.cli.console import console, print_json
from tflgpu.measure.device_model import planned_target
from tflgpu.measure.known_devices import device_model
from tflgpu.model.model_source import read_bytes
from tflgpu.runtime.opencl.devices import choose

# The functions import the stages of the compiler: verbs with a warm start must not.
if TYPE_CHECKING:
    from tflgpu.frontend.control_flow.pieces import LoweredPiece
    from tflgpu.graph.ir import Graph
    from tflgpu.graph.rewrite_rules import Firing
    from tflgpu.kernels.rewriting import Planning
    from tflgpu.passes import Step
    from tflgpu.plan import Plan
    from tflgpu.target import Target

Stage = Literal["model", "graph", "plan", "source", "executable"]


@dataclass(frozen=True)
class View:
    """A stage's view of a graph: plain data for JSON, and lines with markup."""

    data: Callable[[], dict[str, Any]]
    lines: Callable[[], Sequence[RenderableType]]


# Takes a graph, and the names of the model's operators.
MakeView = Callable[["LoweredPiece", Sequence[str]], View]


@with_options("device", "precision")
def show_model(
    model: ModelPath,
    options: tflgpu.Options,
    stage: Annotated[
        Stage, typer.Option(help="How far down the road; model and graph need no device, but for its passes.")
    ] = "graph",
    after: Annotated[
        str | None,
        typer.Option(
            metavar="PASS",
            help="Of the stage graph: stop after this pass; lower is the graph before the first one. Passes for a "
            "device come after the portable ones, ARCHITECTURE.PASS those of an architecture; --after ? names all.",
            show_default="the last portable one",
        ),
    ] = None,
    described: Annotated[
        str | None,
        typer.Option(
            "--device-model",
            metavar="NAME|FILE",
            help="Plan for a device that is not here: one of those that tflgpu describes (--device-model ? names "
            "them), or a file of `tflgpu devices --describe`.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a model becomes: the file as read, its graph after the passes or one of them, the plan for a device,
    the OpenCL source, or the buffers and launches.

    A model with loops, branches or operators for the CPU is shown in its parts, in the order in which they run.
    """
    if after is not None and stage != "graph":
        raise ValueError(f"--after goes with the stage graph, not {stage}")
    if described is not None and options.device != "auto":
        raise ValueError("give --device for a device of this machine or --device-model for another one, not both")
    if described is not None and stage in ("model", "graph") and after is None:
        raise ValueError(f"--device-model goes with --after and the stages plan, source and executable, not {stage}")
    if stage == "model":
        _show_file(model, as_json)
    elif stage == "graph":
        _show_graphs(model, options, after, as_json, described)
    else:
        target = _target(options, described)
        views = {"plan": _plan_view, "source": _source_view, "executable": _executable_view}
        _show_parts(model, options, target, partial(views[stage], target), as_json)


def _show_file(path: Path, as_json: bool) -> None:
    from tflgpu.cli.stages import model_as_dict, model_lines
    from tflgpu.model.reader import read_model

    model = read_model(read_bytes(path))
    if as_json:
        print_json(model_as_dict(model))
    else:
        _print(model_lines(model))


def _show_parts(model: Path, options: tflgpu.Options, target: Target | None, view: MakeView, as_json: bool) -> None:
    """Print what ``view`` makes of each part; a model that runs on the device as one piece needs no headings."""
    from tflgpu.cli.stages import heading, part_as_dict, parts_of

    parts, codes = parts_of(read_bytes(model), options, target.missing_types if target else ())
    views = [None if part.piece is None else view(part.piece, codes) for part in parts]
    whole = views[0] if len(views) == 1 else None
    if as_json:
        each = [part_as_dict(part, shown.data() if shown else None) for part, shown in zip(parts, views, strict=True)]
        print_json(whole.data() if whole else {"parts": each})
    elif whole:
        _print(whole.lines())
    else:
        for number, (part, shown) in enumerate(zip(parts, views, strict=True)):
            _print([*[""] * (number > 0), heading(number, part, codes)])
            if shown is not None:
                _print(["", *shown.lines()])


def _target(options: tflgpu.Options, described: str | None) -> Target:
    """Return what to plan for: a device of this machine, or one of which there is a description."""
    if described is None:
        return planned_target(choose(options.device, options.threads), options)
    return device_model(described).target(options)


def _show_graphs(model: Path, options: tflgpu.Options, after: str | None, as_json: bool, described: str | None) -> None:
    """Print graphs. Passes for a device ask for one."""
    from tflgpu.passes import PASSES
    from tflgpu.passes.device import passes_for

    last = after or list(PASSES)[-1]
    if last in ("lower", *PASSES):
        _show_parts(model, options, None, partial(_graph_view, last, None), as_json)
    elif last in passes_for():
        target = _target(options, described)
        here = list(passes_for(target))
        if last not in here:
            raise ValueError(f"the pass {last!r} is for other devices; in their order those for this one are {here}")
        _show_parts(model, options, target, partial(_graph_view, last, target), as_json)
    else:
        known = ", ".join(("lower", *PASSES, *passes_for()))
        raise ValueError(f"there is no pass {last!r}; in their order they are {known}")


def _graph_view(last: str, target: Target | None, piece: LoweredPiece, codes: Sequence[str]) -> View:
    """Return the graph after a portable pass, or after one for a target."""
    from tflgpu.cli.stages import firing_lines, graph_as_dict, graph_lines
    from tflgpu.kernels.rewriting import Planning
    from tflgpu.passes import optimize, optimizing

    graph = piece.graph if target is None else optimize(piece.graph)
    steps = optimizing(graph) if target is None else _device_steps(Planning(graph, target))
    fired: Sequence[Firing] = ()
    for step in steps:
        before, graph = graph, step.graph
        if step.name == last:
            fired = step.fired or _changes(before, step)
            break
    applied = [{"rule": firing.rule, "operators": firing.sources} for firing in fired]
    lines = [*firing_lines(fired, codes), ""] if fired else []
    return View(lambda: graph_as_dict(graph) | {"fired": applied}, lambda: [*lines, *graph_lines(graph, codes)])


def _device_steps(planning: Planning) -> Iterator[Step]:
    """Yield the passes for a device."""
    from tflgpu.passes import Step
    from tflgpu.passes.device import planning_steps

    for name, after in planning_steps(planning):
        yield Step(name, after.graph)


def _changes(before: Graph, step: Step) -> tuple[Firing, ...]:
    """Return a firing for each node that a pass without rules has changed, by the name of the pass."""
    from tflgpu.graph.rewrite_rules import Firing

    changed = (node for node in step.graph.nodes if before.producer.get(node.output) != node)
    return tuple(Firing(step.name, node.sources) for node in changed)


def _plan_view(target: Target, piece: LoweredPiece, codes: Sequence[str]) -> View:
    from tflgpu.cli.stages import plan_as_dict, plan_lines

    plan = _planned(target, piece)
    return View(lambda: plan_as_dict(plan), lambda: plan_lines(plan, codes))


def _source_view(target: Target, piece: LoweredPiece, _codes: Sequence[str]) -> View:
    from tflgpu.codegen.render import render

    source = render(_planned(target, piece))

    def data() -> dict[str, Any]:
        functions = {f.name: f.source for f in source.functions}
        return {"prelude": source.prelude, "functions": functions, "launches": source.names}

    def lines() -> list[RenderableType]:
        if not console.is_terminal:
            return [Text(source.text)]
        from rich.syntax import Syntax  # with pygments

        return [Syntax(source.text, "c", theme="ansi_dark", background_color="default", word_wrap=True)]

    return View(data, lines)


def _executable_view(target: Target, piece: LoweredPiece, _codes: Sequence[str]) -> View:
    from tflgpu.cli.stages import executable_as_dict, executable_lines
    from tflgpu.codegen.link import link
    from tflgpu.codegen.render import render

    plan = _planned(target, piece)
    executable = link(plan, render(plan).names, piece.output_types)
    return View(lambda: executable_as_dict(executable), lambda: executable_lines(executable))


def _planned(target: Target, piece: LoweredPiece) -> Plan:
    from tflgpu.passes import optimize
    from tflgpu.plan import make_plan

    return make_plan(optimize(piece.graph), target)


def _print(lines: Iterable[RenderableType]) -> None:
    """Lines with markup. They are never broken: a listing is for grep and for wide windows too."""
    for line in lines:
        console.print(line, soft_wrap=isinstance(line, str | Text))
