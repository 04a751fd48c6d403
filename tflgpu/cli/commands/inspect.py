"""``tflgpu inspect``."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape

import tflgpu
from tflgpu.artifact.serializer import find, open_cache
from tflgpu.cli.arguments import AsJson, ModelPath, with_options
from tflgpu.cli.console import Listing, console, print_json
from tflgpu.measure.device_model import planned_target
from tflgpu.model.model_source import ModelContent, read_bytes
from tflgpu.model.tensor_info import TensorInfo
from tflgpu.report.half_precision import HalfPrecision
from tflgpu.report.profile import Stopwatch
from tflgpu.report.report import ModelInfo, OperatorReport, Report, counted
from tflgpu.runtime.opencl.devices import choose

# Different reasons of one operator code that the summary prints.
REASONS = 3

# Heading of the column with an operator's obstacles.
WHY = "why not on the device"

NOT_COMPILED = "the cache does not have the model; its first compilation checks it"

WHERE = {"device": "device", "cpu": "[yellow]CPU[/]", "unsupported": "[red]nowhere[/]"}


@with_options("precision", "signature")
def inspect_model(
    model: ModelPath,
    options: tflgpu.Options,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Plan for this device too; auto is the best one.", show_default=False),
    ] = None,
    operators: Annotated[bool, typer.Option("--operators", help="List every operator, not one line a kind.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell what a model is, which of its operators can run on a device, why not the others, and what would help.

    Needs no device. Given one, it also tells how many kernels it takes, which of them computes each operator, and the
    memory. The documentation describes the JSON.
    """
    report = tflgpu.inspect(model, options) if device is None else _planned(model, replace(options, device=device))
    size = model.stat().st_size
    if as_json:
        print_json({"file": model, "bytes": size} | report.as_dict())
        return
    console.print(f"[bold]{escape(model.name)}[/], {decimal(size)}: {_facts(report)}")
    console.print("", _interface(report.model), "", sep="\n")
    console.print(_every_operator(report) if operators else _kinds(report.operators), "", sep="\n")
    console.print(report.places)
    if report.kernels is not None:
        arena, constants = decimal(report.arena_bytes or 0), decimal(report.constant_bytes or 0)
        console.print(f"{report.kernels} kernels, {arena} of activations, {constants} of constants")
    if report.integers is not None:
        console.print(*map(escape, report.integers.lines), sep="\n")
    if report.floats is not None:
        console.print(*map(escape, report.floats.lines), sep="\n")
    if report.half is not None:
        console.print(escape(report.half.summary))
    for advice in report.advice:
        console.print(f"\n[green]advice:[/] {escape(advice.text)}")


def _facts(report: Report) -> str:
    """``float32, 31 operators, 1.9 MB of constants``, and what else there is."""
    info = report.model
    facts = [info.kind, counted(len(report.operators), "operator"), f"{decimal(info.constant_bytes)} of constants"]
    if len(info.subgraphs) > 1:
        facts.append(
            f"{len(info.subgraphs)} subgraphs with {sum(s.operators for s in info.subgraphs)} operators in all"
        )
    if len(info.signatures) > 1:
        facts.append("signatures " + ", ".join(repr(s.key) for s in info.signatures))
    return escape(", ".join(facts))


def _interface(info: ModelInfo) -> Listing:
    """Return inputs and outputs, one a row."""
    result = Listing("", "name", "shape", "type")
    for side, tensors in (("input", info.inputs), ("output", info.outputs)):
        for tensor in tensors:
            open_shape = side == "output" and not tensor.shape  # files write unknown shapes as they write scalars
            shape = "scalar or unknown" if open_shape else _shape(tensor)
            result.add_row(side, escape(tensor.name), shape, escape(_type(tensor)))
    return result


def _shape(tensor: TensorInfo) -> str:
    """``1x224x224x3``, with the axes that the file leaves open as ``(1)``."""
    sizes = (f"({d})" if axis in tensor.free_axes else str(d) for axis, d in enumerate(tensor.shape))
    return "x".join(sizes) or "scalar"


def _type(tensor: TensorInfo) -> str:
    """``uint8, 0.0078125 * (q - 128)``."""
    if tensor.quantization is None:
        return tensor.dtype
    scale, zero = tensor.quantization.scale, tensor.quantization.zero_point
    if len(scale) > 1:
        return f"{tensor.dtype}, {len(scale)} scales"
    shifted = f"(q {'-' if zero[0] > 0 else '+'} {abs(zero[0])})" if zero[0] else "q"
    return f"{tensor.dtype}, {scale[0]:.6g} * {shifted}"


def _kinds(operators: Sequence[OperatorReport]) -> Listing:
    """One row for each operator code and place: those that do not run on the device first, then the most frequent."""
    groups: defaultdict[tuple[str, str], list[OperatorReport]] = defaultdict(list)
    for o in operators:
        groups[o.device, o.code].append(o)
    refused = any(o.device != "device" or o.reasons for o in operators)
    result = Listing("operator", "count", "where", *[WHY] * refused, right=("count",), prose=(WHY,))
    rows = sorted(groups.items(), key=lambda row: (row[0][0] == "device", -len(row[1]), row[0][1]))
    for (where, code), group in rows:
        why = [_reasons(group)] * refused
        result.add_row(escape(code), str(len(group)), WHERE[where], *map(escape, why))
    return result


def _reasons(operators: Sequence[OperatorReport]) -> str:
    """Return the most frequent reasons, each with how many operators have it if not all do."""
    counts = Counter(r for o in operators for r in o.reasons)
    lines = [r if n == len(operators) else f"{r} ({n} of them)" for r, n in counts.most_common(REASONS)]
    if len(counts) > REASONS:
        lines.append(f"and {len(counts) - REASONS} more; --operators lists them")
    elif not counts and any(o.device == "cpu" for o in operators):
        lines.append("it could, but goes with its neighbours")
    return "\n".join(lines)


def _every_operator(report: Report) -> Listing:
    planned = report.kernels is not None
    columns = ("#", "operator", "v", "where", "kernel", "output", WHY)
    result = Listing(*(c for c in columns if planned or c != "kernel"), right=("#", "v", "kernel"), prose=(WHY,))
    for o in report.operators:
        kernel = ["" if o.kernel is None else str(o.kernel)] if planned else []
        texts = map(escape, (", ".join(o.outputs), "; ".join(o.reasons)))
        result.add_row(str(o.index), escape(o.code), str(o.version), WHERE[o.device], *kernel, *texts)
    return result


def _planned(model: Path, options: tflgpu.Options) -> Report:
    """Return the report with what only a plan knows."""
    from tflgpu.compiler import inspect_model  # verbs with a warm start must not import the compiler
    from tflgpu.measure.integer_check import without_wrong_unit

    chosen = choose(options.device, options.threads)
    cache, planned = open_cache(options), planned_target(chosen, options)
    checked = cache is not None and planned.storage == "half"
    if cache is not None and checked:
        _, compiled = find(ModelContent(model), options, chosen.identity, planned, cache, Stopwatch())
        if compiled is not None:
            return compiled.report
    report = inspect_model(read_bytes(model), options, without_wrong_unit(planned, chosen, cache))
    return replace(report, half=HalfPrecision("", unchecked=NOT_COMPILED)) if checked else report
